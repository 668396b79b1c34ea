"""How many hand-derived rows of work there are, and how many of them the rules miss."""

import csv
import json
from collections.abc import Iterator

from benchmarks._figures import ROOT, Figure
from nearpeak.core.work.work import Work
from nearpeak.ops import case, work_of

FIGURES = ("golden_rows", "golden_rows_unequal")


def measure() -> Iterator[Figure]:
    """Yield the number of rows and of those whose rule gives another integer."""
    rows = [row for file in sorted((ROOT / "tests/golden/work").glob("*.csv")) for row in csv.DictReader(file.open())]
    unequal = sum(counted(row) != int(row["value"]) for row in rows)
    yield Figure(name="golden_rows", value=len(rows), unit="rows", bar=">= 200", passed=len(rows) >= 200)
    yield Figure(name="golden_rows_unequal", value=unequal, unit="rows", bar="0", passed=unequal == 0)


def counted(row: dict[str, str]) -> int:
    """Return what the rule gives for the quantity that the row states."""
    work = work_of(case(row["op"], row["phase"], **json.loads(row["arguments"])))
    name, _, unit = row["kind"].partition(":")
    if name == "comm":
        return work.comm_bytes[unit]
    return _flop(work, name, unit) if unit else getattr(work, {"special": "special_count"}.get(name, name))


def _flop(work: Work, name: str, unit: str) -> int:
    return (work.flop if name == "flop" else work.recompute_flop)[unit]
