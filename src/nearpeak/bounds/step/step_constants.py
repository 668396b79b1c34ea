"""Tensors that a step builds from constants alone: equal in every step, so they could be built once."""

from nearpeak.core.work.workload import Call, Workload

_DRAWN = ("random", "dropout", "multinomial", "collective")
"""Operators that give something else each time, or something that others made."""


def constant_calls(workload: Workload) -> tuple[Call, ...]:
    """Return the calls of the forward pass whose results depend on no weight, input, or earlier step.

    What something else writes into later has to be made anew, and so has everything that is made of it. A step of
    decoding makes other positions each time: nothing of it is a constant.
    """
    if workload.step == "decode":
        return ()
    calls = workload.calls
    made = {use.buffer for call in calls for use in call.writes}
    stated = {number for number, buffer in enumerate(workload.buffers) if buffer.kind == "constant"} - made
    users: dict[int, list[int]] = {}
    for place, call in enumerate(calls):
        for buffer in {use.buffer for use in (*call.reads, *call.writes)} - stated:
            users.setdefault(buffer, []).append(place)
    fixed = {
        place for place, call in enumerate(calls)
        if call.phase == "forward" and call.case is not None and call.case.op not in _DRAWN and call.writes
    }  # fmt: skip
    changing = [use.buffer for place, call in enumerate(calls) if place not in fixed for use in call.writes]
    waiting = [*(users.keys() - made), *changing]
    while waiting:  # storages that hold something else each time, and what is made of them
        for place in users.pop(waiting.pop(), ()):
            if place in fixed:
                fixed.remove(place)
                waiting += [use.buffer for use in calls[place].writes]
    return tuple(calls[place] for place in sorted(fixed))
