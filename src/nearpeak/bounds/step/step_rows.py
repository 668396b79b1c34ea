"""Distinct cases of a step by phase and module, each with its work."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from nearpeak.bounds.step.compulsory_work import touched_work
from nearpeak.core.answers.analysis import CaseRow
from nearpeak.core.work.case import Case
from nearpeak.core.work.distinct_calls import DistinctCall, distinct_calls
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Workload
from nearpeak.ops import OPS, label_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of the analysis and the work behind it."""

    row: CaseRow
    """The row."""
    work: Work
    """Work of one call; of calls that touch different numbers of bytes, the least."""


def parts_of(workload: Workload, works: dict[Case, Work]) -> tuple[Part, ...]:
    """Return the distinct cases by phase and module pattern, largest work first."""
    rows: dict[tuple[Case, str, str], list[DistinctCall]] = {}
    for call in distinct_calls(workload.calls):
        rows.setdefault((call.case, call.phase, call.module), []).append(call)
    labels = {case: label_of(case) for case, _, _ in rows}
    parts = [_part(labels[case], calls, works[case]) for (case, _, _), calls in rows.items()]
    parts.sort(key=lambda part: (part.row.label, part.row.module))
    return tuple(sorted(parts, key=lambda part: (-part.row.matrix_flop * part.row.call_count, -moved_bytes(part.row))))


def _part(label: str, calls: Sequence[DistinctCall], case_work: Work) -> Part:
    """Return the row of calls of one case, phase and module pattern, and the least work that one of them does."""
    work = reduce(_least, [touched_work(call.read_bytes, call.write_bytes, case_work) for call in calls])
    first = calls[0]
    return Part(
        work=work,
        row=CaseRow(
            case=first.case, label=label, family=OPS[first.case.op].family, phase=first.phase, module=first.module,
            source=first.source, call_count=sum(call.call_count for call in calls), matrix_flop=matrix_flop_of(work),
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
