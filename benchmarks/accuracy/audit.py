"""Audits the rows that predictions are scored on: `python -m benchmarks.accuracy.audit CORPUS`. Writes a page."""

import argparse
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block
from benchmarks.accuracy.pages import PAGES, write_page
from nearpeak.core.answers.audit import KINDS
from nearpeak.errors import NearpeakError
from nearpeak.prediction.calibration.samples import Samples
from nearpeak.prediction.calibration.table_audit import audit
from nearpeak.targets import target_of

PAGE = PAGES / "corpus_audit.md"
SHOWN = [kind for kind in KINDS if kind not in ("set_aside", "slow_repeat")]  # blocks have one row per shape
HEAD = f"""# Audit of the measurements that predictions are scored on

Written by `python -m benchmarks.accuracy.audit CORPUS`: `nearpeak audit` on every block of best clean rows (newest
software, best implementation per shape, rows that the corpus itself calls faster than the roofline left out).
{"".join(f"- *{kind}*: {KINDS[kind]}.{chr(10)}" for kind in SHOWN)}
| family | block | rows | {" | ".join(SHOWN)} |
|---|---|---|{"---|" * len(SHOWN)}
"""


COPIES = """
## Copies of another device

Blocks of two devices in which more than half of the cases that both have took the same time to the last digit: at most
one of them can have been measured on its device. Nothing is left out of scores for it.

| family | one | other | cases of both | same time |
|---|---|---|---|---|
"""
LEAST_COMMON, COPIED_SHARE = 20, 0.5
"""Cases of both devices, and those of them with the same time, from which a block is a copy."""


def main() -> None:
    """Print one line per block, and write the page when all families are audited."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.audit", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm; then no page is written")
    options = parser.parse_args()
    lines, copied = [], []
    for family in families(options.family):
        blocks = list(family.blocks(options.corpus))
        for block in blocks:
            lines.append(f"| {family.name} | {block.name} | {cells_of(block)} |")
            print(lines[-1], flush=True)
        for one, other, common, same in copies(blocks):
            copied.append(f"| {family.name} | {one.name} | {other.name} | {common} | {same} |")
            print(copied[-1], flush=True)
    if not options.family:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n" + COPIES + "\n".join(copied) + "\n")


def copies(blocks: Iterable[Block]) -> Iterator[tuple[Block, Block, int, int]]:
    """Yield pairs of blocks of which one is a copy, with the number of cases of both and of those with the same time.

    Short times, which sources round, are the same by chance in a few cases; in more than half of many they are not.
    """
    for one, other in combinations(blocks, 2):
        if (one.source, one.kind) != (other.source, other.kind) or one.device == other.device:
            continue
        first, second = (_times(block) for block in (one, other))
        common = first.keys() & second.keys()
        same = sum(first[key] == second[key] for key in common)
        if len(common) >= LEAST_COMMON and same > COPIED_SHARE * len(common):
            yield one, other, len(common), same


def _times(block: Block) -> dict[tuple[int, ...], float]:
    """Return the time of each case by its axes and the settings that differ from row to row."""
    columns = [np.asarray(column).tolist() for column in (*block.axes.values(), *block.settings.values())]
    return dict(zip(zip(*columns, strict=True), block.measured_s.tolist(), strict=True))


def cells_of(block: Block) -> str:
    """Return how many rows a block has and of each finding, or why it is not audited."""
    if block.kernels:
        return "not audited: sums over several kernels, which are no case" + " |" * len(SHOWN)
    count = len(block.measured_s)
    table = block.table(np.arange(count))
    samples = Samples(
        cases=tuple(table.cases()), table=table, measured_s=block.measured_s, rows=np.arange(count) + 1, set_aside=()
    )
    try:
        found = audit({}, samples, target_of(block.device)).counts
    except NearpeakError as error:
        return f"not audited: {error}" + " |" * len(SHOWN)
    return " | ".join([str(count), *(str(found.get(kind, 0)) for kind in SHOWN)])


if __name__ == "__main__":
    main()
