"""Fits the coefficients that ship with nearpeak: `python -m benchmarks.accuracy.fit CORPUS`.

Only blocks that a family allows are read; only the folds of FITTED for scalars and corrections, only INTERVAL for
intervals and their scales.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, folds, maker_of
from benchmarks.accuracy.refine import FITTED, interval, refined, with_interval
from nearpeak.prediction.calibration.coefficient_file import (
    TABLES,
    Ends,
    Refinement,
    group_entry,
    group_text,
    groups_of,
    intervals,
)
from nearpeak.prediction.calibration.coefficient_store import mean_coefficients
from nearpeak.prediction.calibration.fit import Fit, Times, fit
from nearpeak.prediction.residual_correction import correction_of
from nearpeak.targets import TARGETS, target_of

ALLOWED_BUCKETS = range(3, 20)
"""Shape buckets that may be read; 0 to 2 are not in the corpus."""
PRIOR_ROWS = 3.0
"""Rows that usual scalars count for where there are fewer than three rows for each scalar."""
ASTRAY = 1.05
"""Ratio of mean deviations above which a fit held near all devices has missed the minimum of its own."""
SEED = 20261120
_HEAD = """# Written by `python -m benchmarks.accuracy.fit CORPUS{options}`:
# folds 0 and 1 of the sites of each device, at most {rows} rows for each fit, seed {seed}; intervals on fold 2.
"""
ALONE = 2.0
"""How much wider, in logarithms, an interval is where no device can be left out to measure it."""
SOURCES = {
    "aiconfigurator": "ai-dynamo/aiconfigurator 095f58a (Apache-2.0)", "neusight": "sitar-lab/NeuSight 6945927 (MIT)",
    "aiter": "ROCm/aiter e404860 (MIT)", "miopen": "ROCm/MIOpen 2d1fd99 (MIT)",
    "vidur": "microsoft/vidur 7d47513 (MIT)", "infersim": "alibaba/InferSim f2293da (Apache-2.0)",
    "deepbench": "baidu-research/DeepBench da81ba7 (Apache-2.0)",
    "llmcompass": "PrincetonUniversity/LLMCompass 2e015fd (BSD-3)",
    "llmservingsim": "casys-kaist/LLMServingSim 5daddb2 (MIT)", "tracelens": "AMD-AGI/TraceLens 171dd74 (MIT)",
    "simumax": "MooreThreads/SimuMax 4dcaae5 (Apache-2.0)",
}  # fmt: skip
FOLDER = Path(__file__).parents[2] / "src/nearpeak/prediction/coefficients"


def main() -> None:
    """Fit each allowed block, and all devices of a kind of case together as the prior; write one file per device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm; all by default")
    parser.add_argument("--maker", default="", help="devices of one maker, e.g. amd; all by default")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--intervals", action="store_true", help="keep all but the intervals of devices")
    parser.add_argument("--corrections", action="store_true", help="keep scalars, fit corrections and set intervals")
    options = parser.parse_args()
    for family in (_of_maker(one, options.maker) for one in families(options.family)):
        if options.intervals or options.corrections:
            _set_anew(family, options.corpus, options.out / family.name, options.corrections)
            continue
        (options.out / family.name).mkdir(exist_ok=True, parents=True)
        for stem, groups in _files(family, options.corpus):
            text = "\n".join([_HEAD.format(options=_asked(options), seed=SEED, rows=family.sample_count), *groups])
            (options.out / family.name / f"{stem}.toml").write_text(text, encoding="utf-8")


def _asked(options: argparse.Namespace) -> str:
    """Return the options that chose what was fitted, as they are written."""
    return "".join(f" --{name} {value}" for name in ("family", "maker") if (value := getattr(options, name)))


def _of_maker(family: Family, maker: str) -> Family:
    """Return a family whose blocks are of devices of one maker; as it is where none is named."""

    def blocks(folder: Path) -> Iterator[Block]:
        known = (block for block in family.blocks(folder) if block.device.partition(":")[0] in TARGETS)
        yield from (block for block in known if maker_of(block) == maker)

    return replace(family, blocks=blocks) if maker else family


def _files(family: Family, corpus: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of each coefficient file of a family as TOML, by the file's stem, whenever one is added."""
    allowed = [block for block in family.blocks(corpus) if family.is_allowed(block)]
    files: dict[str, list[str]] = {}
    for (maker, kind), blocks in _grouped(allowed, lambda b: (maker_of(b), family.group(b))):
        for stem, found in fitted_each(family, blocks).items():
            own = _own(family, kind, [block for block in blocks if block.device == stem], found)
            files.setdefault(stem, []).append(own)
            yield stem, files[stem]
            print(f"fitted {family.name}.{kind} of {stem}", flush=True)
        stem, telling = f"_prior_{maker}", [block for block in blocks if family.tells_of_others(block)]
        if not telling:
            continue  # what another format tells is nearer
        files.setdefault(stem, []).append(_prior(family, kind, telling))
        yield stem, files[stem]
        print(f"fitted {family.name}.{kind} of all devices of {maker}", flush=True)


def _set_anew(family: Family, corpus: Path, folder: Path, corrections: bool) -> None:
    """Write the intervals of each measured device's groups anew, its corrections too, for the scalars of its file."""
    allowed = [block for block in family.blocks(corpus) if family.is_allowed(block)]
    for (stem, kind), blocks in _grouped(allowed, lambda b: (b.device, family.group(b))):
        path, name = folder / f"{stem}.toml", f"{family.name}.{kind}"
        groups = groups_of(path)
        if name not in groups:
            continue
        entry = {key: value for key, value in groups[name].items() if key not in TABLES[1:]}
        values = np.array([entry["scalars"][one.name] for one in family.model.coefficients])
        pairs = [(block, values) for block in blocks]
        if corrections:
            found = refined(family, blocks, values)
        else:
            kept = correction_of(groups[name]["correction"]) if "correction" in groups[name] else None
            found = with_interval(family, blocks, values, kept)
        groups[name] = entry | intervals(interval(family, pairs), found)
        path.write_text("\n".join(group_text(*one) for one in groups.items()), encoding="utf-8")
        print(f"{'no correction' if found.correction is None else 'corrected'}: {name} of {stem}", flush=True)


def _grouped(blocks: Sequence[Block], key: Any) -> list[tuple[tuple[str, str], list[Block]]]:
    return [(name, list(group)) for name, group in groupby(sorted(blocks, key=key), key)]


def times_of(family: Family, block: Block, rows: Any, target: str = "") -> Any:
    """Return the predicted times of rows of a block as a function of the scalars."""
    device, columns = target_of(target or block.device), block.columns(rows)
    setting = block.setting_of(rows)
    return lambda coefficients: family.model.rows(device, columns, np.asarray(coefficients), setting).time_s


def _remembered(family: Family, block: Block, times: Times) -> Times:
    """Return `times` that are not worked out again when only scalars move that the block says nothing about."""
    fixed = set(family.fixed(block))
    used = [place for place, one in enumerate(family.model.coefficients) if one.name not in fixed]
    known: dict[bytes, Any] = {}

    def found(coefficients: Any) -> Any:
        key = np.asarray(coefficients, dtype=float)[used].tobytes()
        if key not in known:
            if len(known) > len(family.model.coefficients):
                known.clear()
            known[key] = times(coefficients)
        return known[key]

    return found


def sample(chosen: Any, count: int) -> Any:
    """Return the positions of at most `count` of the chosen rows."""
    rows = np.flatnonzero(chosen)
    return np.sort(np.random.default_rng(SEED).permutation(rows)[:count])


def fitted_together(family: Family, group: Sequence[Block], share: float = 1.0) -> Fit:
    """Return the scalars that fit one block, or several with the same weight each."""
    count, devices = int(family.sample_count * share), sorted({block.device for block in group})
    picked = [(block, sample(np.isin(folds(block), FITTED), count // len(group))) for block in group]
    each = [_remembered(family, block, times_of(family, block, rows)) for block, rows in picked]
    measured = np.concatenate([block.measured_s[rows] for block, rows in picked])
    fixed = set.intersection(*(set(family.fixed(block)) for block in group))
    if family.own and len(devices) > 1:
        own = {one: fitted_together(family, [b for b in group if b.device == one], share).values for one in devices}
        each = [_with_own(family, times, own[block.device]) for block, times in zip(group, each, strict=True)]
        fixed |= set(family.own)
    few = len(measured) < 3 * (len(family.model.coefficients) - len(fixed))
    return best_fit(
        family, lambda v: np.concatenate([one(v) for one in each]), measured, tuple(fixed), PRIOR_ROWS if few else 0.0
    )


def _with_own(family: Family, times: Times, own: Any) -> Times:
    """Return `times` with a device's own scalars in place of the given ones."""
    places = [place for place, one in enumerate(family.model.coefficients) if one.name in family.own]

    def found(coefficients: Any) -> Any:
        values = np.array(coefficients, dtype=float)
        values[places] = own[places]
        return times(values)

    return found


def _usual_own(family: Family, found: Fit) -> Fit:
    """Return a fit for devices without data, whose library is not known."""
    pairs = zip(family.model.coefficients, found.values, strict=True)
    return replace(found, values=np.array([one.usual_value if one.name in family.own else v for one, v in pairs]))


def best_fit(family: Family, times: Times, measured: Any, fixed: tuple[str, ...], prior_weight: float = 0.0) -> Fit:
    """Return the best of the fits from the family's starts, those aside that name what the rows say nothing about."""
    found = []
    for start in (one for one in family.starts if not set(one) & set(fixed)):
        first = np.array([start.get(one.name, one.usual_value) for one in family.model.coefficients])
        one = fit(
            family.model,
            times,
            measured,
            fixed=fixed,
            start=first,
            deviation=family.deviation,
            prior_weight=max(prior_weight, family.usual_rows_count),
        )
        found.append((_wrong(family, times, measured, one), one))
    return min(found, key=lambda each: each[0])[1]


def _wrong(family: Family, times: Times, measured: Any, found: Fit) -> float:
    return float(np.abs(family.deviation(times(found.values) / measured)).mean())


def fitted_each(family: Family, group: Sequence[Block], share: float = 1.0) -> dict[str, Fit]:
    """Return the scalars of each device, held near those that fit all of them together."""
    home = fitted_together(family, [block for block in group if family.tells_of_others(block)] or group, share).values
    devices = sorted({block.device for block in group})
    return {one: _held(family, [block for block in group if block.device == one], home, share) for one in devices}


def _held(family: Family, group: Sequence[Block], home: Any, share: float) -> Fit:
    count = int(family.sample_count * share)
    picked = [(block, sample(np.isin(folds(block), FITTED), count // len(group))) for block in group]
    each = [_remembered(family, block, times_of(family, block, rows)) for block, rows in picked]
    measured = np.concatenate([block.measured_s[rows] for block, rows in picked])
    fixed = set.intersection(*(set(family.fixed(block)) for block in group))

    def times(values: Any) -> Any:
        return np.concatenate([one(values) for one in each])

    held = fit(
        family.model, times, measured, start=home, prior_weight=family.shared_rows_count, fixed=tuple(fixed),
        deviation=family.deviation,
    )  # fmt: skip
    if family.is_held:
        return held
    free = best_fit(family, times, measured, tuple(fixed))
    wrong = [_wrong(family, times, measured, found) for found in (held, free)]
    return held if wrong[0] < ASTRAY * wrong[1] else free


def unseen_values(family: Family, block: Block, others: Sequence[Block], share: float = 1.0) -> Any:
    """Return the scalars that a block's device gets when only `others` are measured, as predictions make them."""
    if family.model.size is None or maker_of(block) != maker_of(others[0]):
        return _usual_own(family, fitted_together(family, others, share)).values
    measured = [(target_of(name), one.values) for name, one in fitted_each(family, others, share).items()]
    return mean_coefficients(family.model, target_of(block.device), block.dtypes, measured)


def _own(family: Family, kind: str, group: Sequence[Block], found: Fit) -> str:
    """Return the group of one device and kind of case as TOML."""
    ends = interval(family, [(block, found.values) for block in group])
    return _toml(family, kind, found, ends, group, refined(family, group, found.values))


def _prior(family: Family, kind: str, group: Sequence[Block]) -> str:
    """Return the group of all devices together; its interval comes from leaving each device out in turn."""
    found, devices = _usual_own(family, fitted_together(family, group)), {block.device for block in group}
    if len(devices) == 1:
        ends = interval(family, [(block, found.values) for block in group])
        return _toml(
            family, kind, found, {name: (low**ALONE, high**ALONE) for name, (low, high) in ends.items()}, group
        )
    left_out: list[tuple[Block, Any]] = []
    for device in sorted(devices):
        others = [block for block in group if block.device != device]
        out = [block for block in group if block.device == device]
        values: dict[str, Any] = {}
        for block in out:
            if str(block.dtypes) not in values:  # what a device without data gets depends on it and on the formats
                values[str(block.dtypes)] = unseen_values(family, block, others, family.left_out_share)
            left_out.append((block, values[str(block.dtypes)]))
    return _toml(family, kind, found, interval(family, left_out), group)


def _toml(
    family: Family,
    kind: str,
    found: Fit,
    ends: Ends,
    group: Sequence[Block],
    on_top: Refinement | None = None,
) -> str:
    """Return one group of a coefficient file."""
    count = sum(int(np.isin(folds(block), FITTED).sum()) for block in group)
    origin = "; ".join(sorted({SOURCES[block.source] for block in group}))
    devices = ", ".join(sorted({block.device for block in group}))
    source = f"{origin}; newest software, best implementation per shape; {devices}"
    entry = group_entry(family.model, found, ends, count, source, on_top)
    alone = [one.name for one in family.model.coefficients if _is_alone(family, group, one.name)]
    if alone:
        entry = {"alone": alone, **entry}
    return group_text(f"{family.name}.{kind}", entry)


def _is_alone(family: Family, group: Sequence[Block], name: str) -> bool:
    """Return whether only blocks of a group that tell about no other device say something about a scalar."""
    saying = [family.tells_of_others(block) for block in group if name not in family.fixed(block)]
    return bool(saying) and not any(saying)


if __name__ == "__main__":
    main()
