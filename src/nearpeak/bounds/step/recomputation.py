"""Recomputed calls of a backward pass, which repeat a forward call as activation checkpointing does."""

from collections.abc import Hashable

from nearpeak.core.work.workload import Call, Workload

_Value = int
"""Number of one content of a storage; a write makes a new one."""


def repeated_calls(workload: Workload) -> list[bool]:
    """Return for each call whether it computes again, from the same contents, what a forward call computed.

    The results of such a call are the contents that the forward call left, so that whole repeated chains are found.
    """
    contents: list[_Value] = list(range(len(workload.buffers)))
    forward: dict[Hashable, tuple[_Value, ...]] = {}
    fresh = len(contents)
    repeated = []
    for call in workload.calls:
        results = tuple(range(fresh, fresh + len(call.writes)))
        fresh += len(results)
        again = False
        if call.phase == "forward":
            forward.setdefault(_key(call, contents), results)
        elif call.phase == "backward" and call.case is not None and call.reads:
            known = forward.get(_key(call, contents), ())
            again = len(known) == len(results) > 0
            results = known if again else results
        for use, value in zip(call.writes, results, strict=True):
            contents[use.buffer] = value
        repeated.append(again)
    return repeated


def _key(call: Call, contents: list[_Value]) -> Hashable:
    """Return what a call computes: its case on these contents."""
    return (call.case, *[(contents[u.buffer], u.start_bytes, u.stop_bytes, u.bytes) for u in call.reads])
