"""The distinct cases of a step by phase and module, each with its work as the step's calls do it."""

import dataclasses
from dataclasses import dataclass

from nearpeak.core.analysis import CaseRow
from nearpeak.core.case import Case
from nearpeak.core.distinct import distinct_calls
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


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What has been seen of one row."""

    work: Work
    """Least work of a call."""
    source: str
    """Where the first call came from."""
    call_count: int = 0
    """Calls so far."""


def parts_of(workload: Workload, works: dict[Case, Work]) -> tuple[Part, ...]:
    """Return the distinct cases by phase and module pattern, largest work first."""
    tallies: dict[tuple[Case, str, str], _Tally] = {}
    for call in distinct_calls(workload.calls):
        key = (call.case, call.phase, call.module)
        work = touched_work(call.read_bytes, call.write_bytes, works[call.case])
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _Tally(work=work, source=call.source)
        tally.call_count += call.call_count
        if work is not tally.work:
            tally.work = _least(tally.work, work)
    parts = [Part(row=_row(key, tally), work=tally.work) for key, tally in tallies.items()]
    return tuple(sorted(parts, key=_order))


def moved_bytes(row: CaseRow) -> int:
    """Return the bytes that all calls of a row read and write."""
    return (row.read_bytes + row.write_bytes) * row.call_count


def _least(left: Work, right: Work) -> Work:
    return dataclasses.replace(
        left,
        read_bytes=min(left.read_bytes, right.read_bytes),
        write_bytes=min(left.write_bytes, right.write_bytes),
    )


def _row(key: tuple[Case, str, str], tally: _Tally) -> CaseRow:
    (case, phase, module), work = key, tally.work
    matrix_flop = sum(amount for kind, amount in work.flop.items() if kind.startswith("matrix."))
    return CaseRow(
        case=case, label=label_of(case), family=OPS[case.op].family, phase=phase, module=module, source=tally.source,
        call_count=tally.call_count, matrix_flop=matrix_flop, total_flop=work.total_flop,
        read_bytes=work.read_bytes, write_bytes=work.write_bytes,
    )  # fmt: skip


def _order(part: Part) -> tuple[int, int, str, str]:
    row = part.row
    return (-row.matrix_flop * row.call_count, -moved_bytes(row), row.label, row.module)
