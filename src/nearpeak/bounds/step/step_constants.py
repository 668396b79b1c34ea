"""Tensors that a step builds from constants alone: equal in every step, so they could be built once."""

from collections.abc import Mapping, Sequence

from nearpeak.core.answers.analysis import CaseRow, CaseTime, Opportunity
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Call, Workload

_DRAWN = ("random", "dropout", "multinomial", "collective")
"""Operators that give something else each time, or something that others made."""
_SHOWN = 3
"""Lines of source that are named."""


def constant_calls(workload: Workload) -> tuple[Call, ...]:
    """Return the calls of the forward pass whose results depend on no weight, input, or earlier step.

    What something else writes into later has to be made anew, and so has everything that is made of it. A step of
    decoding makes other positions each time: nothing of it is a constant.
    """
    if workload.step == "decode":
        return ()
    calls = workload.calls
    makers: dict[int, set[int]] = {}
    for place, call in enumerate(calls):
        for use in call.writes:
            makers.setdefault(use.buffer, set()).add(place)
    stated = {number for number, buffer in enumerate(workload.buffers) if buffer.kind == "constant"}
    touched = [{use.buffer for use in (*call.reads, *call.writes)} - (stated - makers.keys()) for call in calls]
    fixed = {
        place for place, call in enumerate(calls)
        if call.phase == "forward" and call.case is not None and call.case.op not in _DRAWN and call.writes
    }  # fmt: skip
    while True:
        remaining = {
            place
            for place in fixed
            if all(makers.get(touched_buffer, {-1}) <= fixed for touched_buffer in touched[place])
        }
        if remaining == fixed:
            return tuple(calls[place] for place in sorted(fixed))
        fixed = remaining


def constant_opportunities(
    workload: Workload, rows: Sequence[CaseRow], times: Sequence[CaseTime], target: Target
) -> list[Opportunity]:  # fmt: skip
    """Return what making such tensors once gains at most: their bounds, or the least time of a kernel for each."""
    calls = [call for call in constant_calls(workload) if call.source]
    if not calls:
        return []
    bound_s: Mapping[Case, float] = {row.case: time.bound_s for row, time in zip(rows, times, strict=True)}
    gain_s = sum(
        max(bound_s.get(call.case, 0.0), target.launch_floor_s or 0.0) * call.call_count
        for call in calls if call.case is not None
    )  # fmt: skip
    sources = list(dict.fromkeys(call.source for call in calls))
    more = f" and {len(sources) - _SHOWN} more lines" if len(sources) > _SHOWN else ""
    count = sum(call.call_count for call in calls)
    names = sorted({call.operator.removeprefix("aten.").removesuffix(".default") for call in calls})[:6]
    return [
        Opportunity(
            kind="constants", title="Make tensors that are the same in every step once and keep them (register_buffer)",
            where=", ".join(sources[:_SHOWN]) + more, gain_s=gain_s,
            evidence=f"{count} calls depend on no weight and no input, only on shapes: {', '.join(names)}",
        )
    ]  # fmt: skip
