"""Leaves each device out, measures 30 designed cases, scores the rest: `python -m benchmarks.accuracy.designed CORPUS`.

As for a device that nobody has measured: scalars and their spread come from all other devices, the cases are chosen by
`predict.design` among a seeded sample of the cases that the corpus has times of, and the cases measured are not scored.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, left_out
from benchmarks.accuracy.fit import fitted_together, times_of, unseen_values
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.scores import LONG_S, error_of
from nearpeak.errors import NearpeakError
from nearpeak.prediction.calibration.device_fit import insensitive_places, slopes, spread_from
from nearpeak.prediction.calibration.fit import fit
from nearpeak.prediction.calibration.measurement_design import MOST_CASES, chosen, misfit_of, weights_of

SEEDS = tuple(range(8))
CANDIDATES = 1000
HEAD = """# What 30 designed measurements buy on a device without data

Written by `python -m benchmarks.accuracy.designed CORPUS`. For each device, scalars come from all other devices of
its maker, as predictions without data take them; then 30 of its cases are chosen by the rule of `nearpeak calibrate
plan` among 1,000 drawn by a seed, their times are read, and the scalars fitted to them with what other devices let
expect. Scored on every other clean row.
Mean absolute error in percent: without data, and after 30 cases the mean and the worst of 8 seeds.

| family | left out | rows | no data: all | above 50 us | 30 cases: all | above 50 us | worst: all | above 50 us |
|---|---|---|---|---|---|---|---|---|
"""
PAGE = PAGES / "accuracy_designed.md"


def main() -> None:
    """Print one line per device and kind of case; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.designed", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm")
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_designed.md")
    options = parser.parse_args()
    if options.page and options.family:
        parser.error("--page takes all families; leave --family away")
    lines = []
    for family in families(options.family):
        for block, others in left_out(family, options.corpus) if family.model.grid else ():
            try:
                lines.append(_line(family, block, others))
            except NearpeakError as error:
                print(f"{family.name}: {block.name}: {error}", file=sys.stderr)
                continue
            print(lines[-1], flush=True)
    if options.page:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n")


def _line(family: Family, block: Block, others: Sequence[Block]) -> str:
    start = unseen_values(family, block, others)
    each = [fitted_together(family, [one], 0.5) for one in others]
    spread = spread_from(family.model, [(one.values, one.unidentified) for one in each], start)
    rows = np.arange(len(block.measured_s))
    before = _errors(times_of(family, block, rows)(start), block.measured_s)
    after = np.array([_after(family, block, start, spread, seed) for seed in SEEDS])
    cells = (*before, *np.nanmean(after, axis=0), *np.nanmax(after, axis=0))
    numbers = " | ".join("–" if np.isnan(cell) else f"{100 * cell:.1f}" for cell in cells)
    return f"| {family.name} | {block.name} | {len(rows)} | {numbers} |"


def _after(family: Family, block: Block, start: Any, spread: Any, seed: int) -> tuple[float, float]:
    """Return the errors of all rows, and of long ones, that were neither measured nor chosen."""
    model, count = family.model, len(block.measured_s)
    pool = np.sort(np.random.default_rng(seed).permutation(count)[:CANDIDATES])
    expected = times_of(family, block, pool)
    effects, weights = slopes(expected, model, start) * spread, weights_of(expected(start))
    misfit = misfit_of([column[pool] for column in block.axes.values()])
    picked = pool[[pick for pick, _ in chosen(effects, MOST_CASES, misfit, weights)]]
    times = times_of(family, block, picked)
    fixed = [model.coefficients[i].name for i in insensitive_places(slopes(times, model, start) * spread)]
    values = fit(model, times, block.measured_s[picked], fixed=fixed, start=start, spread=spread).values
    rest = np.setdiff1d(np.arange(count), picked)
    return _errors(times_of(family, block, rest)(values), block.measured_s[rest])


def _errors(predicted: Any, measured: Any) -> tuple[float, float]:
    long = measured > LONG_S
    found = error_of(predicted, measured), error_of(predicted[long], measured[long])
    return tuple(float("nan") if one is None else one.mean_ratio for one in found)  # type: ignore[return-value]


if __name__ == "__main__":
    main()
