"""The distinct cases of a step by phase and module, each with its work as the step's calls do it."""

import dataclasses
from dataclasses import dataclass
from functools import reduce

from nearpeak.core.analysis import CaseRow
from nearpeak.core.case import Case
from nearpeak.core.distinct import DistinctRow, distinct_rows
from nearpeak.core.work import Work
from nearpeak.core.workload import Workload
from nearpeak.ops import OPS, label_of
from nearpeak.theory.compulsory import touched_work


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of the analysis and the work behind it."""

    row: CaseRow
    """The row."""
    work: Work
    """Work of one call; of calls that touch different numbers of bytes, the least."""


def parts_of(workload: Workload, works: dict[Case, Work]) -> tuple[Part, ...]:
    """Return the distinct cases by phase and module pattern, largest work first."""
    step = distinct_rows(workload.calls, label_of)
    own = [works[case] for case in step.cases]
    parts = [_part(row, own[row.place]) for row in step.rows]
    return tuple(sorted(parts, key=_order))


def touched_of(row: DistinctRow, work: Work) -> Work:
    """Return the least work that a call of a row does, of the `work` of its case."""
    found = [touched_work(call.read_bytes, call.write_bytes, work) for call in row.calls]
    return reduce(_least, found)


def _part(row: DistinctRow, own: Work) -> Part:
    (first, *_), work = row.calls, touched_of(row, own)
    case = first.case
    return Part(
        work=work,
        row=CaseRow(
            case=case, label=row.label, family=OPS[case.op].family, phase=first.phase, module=first.module,
            source=first.source, call_count=row.call_count, matrix_flop=matrix_flop_of(work),
            total_flop=work.total_flop, read_bytes=work.read_bytes, write_bytes=work.write_bytes,
        ),
    )  # fmt: skip


def moved_bytes(row: CaseRow) -> int:
    """Return the bytes that all calls of a row read and write."""
    return (row.read_bytes + row.write_bytes) * row.call_count


def matrix_flop_of(work: Work) -> int:
    """Return the FLOP that matrix units can do."""
    return sum(amount for kind, amount in work.flop.items() if kind.startswith("matrix."))


def _least(left: Work, right: Work) -> Work:
    if right is left:
        return left
    return dataclasses.replace(
        left,
        read_bytes=min(left.read_bytes, right.read_bytes),
        write_bytes=min(left.write_bytes, right.write_bytes),
    )


def _order(part: Part) -> tuple[int, int, str, str]:
    row = part.row
    return (-row.matrix_flop * row.call_count, -moved_bytes(row), row.label, row.module)
