"""Audits the rows that predictions are scored on: `python -m benchmarks.accuracy.audit CORPUS`. Writes a page."""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block
from nearpeak.core.audit import KINDS
from nearpeak.errors import NearpeakError
from nearpeak.predict.audit import audit
from nearpeak.predict.samples import Samples
from nearpeak.targets import target_of

PAGE = Path(__file__).parents[2] / "docs/explain/corpus_audit.md"
SHOWN = [kind for kind in KINDS if kind != "set_aside"]
HEAD = f"""# Audit of the measurements that predictions are scored on

Written by `python -m benchmarks.accuracy.audit CORPUS`: `nearpeak audit` on every block of best clean rows (newest
software, best implementation per shape, rows that the corpus itself calls faster than the roofline left out).
{"".join(f"- *{kind}*: {KINDS[kind]}.{chr(10)}" for kind in SHOWN)}
| family | block | rows | {" | ".join(SHOWN)} |
|---|---|---|{"---|" * len(SHOWN)}
"""


def main() -> None:
    """Print one line per block, and write the page when all families are audited."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.audit", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm; then no page is written")
    options = parser.parse_args()
    lines = []
    for family in families(options.family):
        for block in family.blocks(options.corpus):
            lines.append(f"| {family.name} | {block.name} | {_cells(block)} |")
            print(lines[-1], flush=True)
    if not options.family:
        PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _cells(block: Block) -> str:
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
