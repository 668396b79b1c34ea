"""Leaves each device out in turn and scores it: `python -m benchmarks.accuracy.unseen CORPUS`. Writes a page."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.corpus import Block, blocks
from benchmarks.accuracy.fit import ALLOWED, fitted_together, is_allowed, maker_of, times_of
from benchmarks.accuracy.scores import LONG_S, error_of, shown, table_of
from nearpeak.core.bound import Policy
from nearpeak.targets import target_of
from nearpeak.theory.table import bound_table

PAGE = Path(__file__).parents[2] / "docs/explain/accuracy_unseen.md"
HEAD = """# How far predictions are on a device without data

Written by `python -m benchmarks.accuracy.unseen CORPUS`. For each device, the scalars of a format are fitted on all
other devices of its maker together (of other makers where there is none) and scored on every clean row of the one left
out, as for a device that nobody has measured.
Errors in percent: mean absolute / median / 90th percentile / signed bias. *Roofline*: mean absolute error of the plain
roofline at documented rates. The form itself was shaped while looking at all of these devices.

| left out | fitted on | rows | all | above 50 us | roofline |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Print one line per device and format, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.unseen", description=__doc__)
    parser.add_argument("corpus", type=Path)
    options = parser.parse_args()
    allowed = [block for block in blocks(options.corpus) if is_allowed(block, ALLOWED)]
    lines = []
    for line in _lines(allowed):
        print(line, flush=True)
        lines.append(line)
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _lines(allowed: Sequence[Block]) -> Iterator[str]:
    """Yield a row of the table for each block whose format other devices have too."""
    for block in allowed:
        alike = [b for b in allowed if b.product.dtype == block.product.dtype and b.device != block.device]
        own = [b for b in alike if maker_of(b) == maker_of(block)]
        if alike:
            yield _line(block, own or alike)


def _line(block: Block, others: Sequence[Block]) -> str:
    rows, measured = np.arange(len(block.measured_s)), block.measured_s
    table = table_of(block, rows)
    found = bound_table(table, target_of(block.device), Policy())
    predicted = np.maximum(times_of(block, rows)(fitted_together(others).values), found.bound_s)
    long = measured > LONG_S
    roofline = error_of(found.roofline_s, measured)
    assert roofline is not None
    cells = (
        block.name, ", ".join(sorted(b.device for b in others)), f"{len(measured)}",
        shown(error_of(predicted, measured)), shown(error_of(predicted[long], measured[long])),
        f"{100 * roofline.mean_ratio:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
