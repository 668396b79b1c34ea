"""Leaves each device out in turn and scores it: `python -m benchmarks.accuracy.unseen CORPUS`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, left_out
from benchmarks.accuracy.fit import times_of, unseen_values
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.scores import LONG_S, error_of, shown
from nearpeak.bounds.bound_table import bound_table
from nearpeak.core.answers.bound import Policy
from nearpeak.errors import NearpeakError
from nearpeak.targets import target_of

PAGE = PAGES / "accuracy_unseen.md"
HEAD = """# How far predictions are on a device without data

Written by `python -m benchmarks.accuracy.unseen CORPUS`. For each device, the scalars of a format are fitted on each
other device of its maker, held near those of all of them together, moved by what documents say of launch floors and
board power, and averaged by the size of their multiprocessors, in attention by how kernels feed their matrix units
(fitted on other makers together where there is none of its own), and scored on every clean row of the one left out, as
for a device that nobody has measured.
Errors in percent: mean absolute / median / 90th percentile / signed bias. *Roofline*: mean absolute error of the plain
roofline at documented rates. The form itself was shaped while looking at all of these devices.

| family | left out | fitted on | rows | all | above 50 us | roofline |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Print one line per device and format; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.unseen", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm")
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_unseen.md")
    options = parser.parse_args()
    if options.page and options.family:
        parser.error("--page takes all families; leave --family away")
    lines = []
    for family in families(options.family):
        for block, others in left_out(family, options.corpus):
            try:
                lines.append(_line(family, block, others))
            except NearpeakError as error:
                print(f"{family.name}: {block.name}: {error}", file=sys.stderr)
                continue
            print(lines[-1], flush=True)
    if options.page:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n")


def _line(family: Family, block: Block, others: Sequence[Block]) -> str:
    rows, measured = np.arange(len(block.measured_s)), block.measured_s
    found = bound_table(block.table(rows), target_of(block.device), Policy())
    values = unseen_values(family, block, others)
    predicted = np.maximum(times_of(family, block, rows)(values), found.bound_s)
    long = measured > LONG_S
    roofline = error_of(found.roofline_s, measured)
    assert roofline is not None
    cells = (
        family.name, block.name, ", ".join(sorted({b.device for b in others})), f"{len(measured)}",
        shown(error_of(predicted, measured)), shown(error_of(predicted[long], measured[long])),
        f"{100 * roofline.mean_ratio:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
