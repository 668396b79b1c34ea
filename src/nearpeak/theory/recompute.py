"""Calls of a backward pass that only repeat a forward call, as activation checkpointing makes them."""

from collections.abc import Hashable

from nearpeak.core.workload import Call, Workload

_Value = int
"""Number of one content of a storage; a write makes a new one."""


def repeated_calls(workload: Workload) -> list[bool]:
    """Return for each call whether it computes again, from the same contents, what a forward call computed.

    The results of such a call are the contents that the forward call left, so that whole repeated chains are found.
    """
    contents: dict[int, _Value] = {}
    forward: dict[Hashable, tuple[_Value, ...]] = {}
    fresh = len(workload.buffers)
    repeated = []
    for call in workload.calls:
        key = _key(call, contents)
        known = forward.get(key) if call.phase == "backward" and call.reads and call.case is not None else None
        again = known is not None and len(known) == len(call.writes)
        results = known if again and known is not None else tuple(range(fresh, fresh + len(call.writes)))
        fresh += len(call.writes)
        if call.phase == "forward":
            forward.setdefault(key, results)
        for use, value in zip(call.writes, results, strict=True):
            contents[use.buffer] = value
        repeated.append(again)
    return repeated


def _key(call: Call, contents: dict[int, _Value]) -> Hashable:
    """Return what a call computes: its case on these contents."""
    return call.case, tuple(
        (contents.get(use.buffer, use.buffer), use.bytes, use.start_bytes, use.stop_bytes) for use in call.reads
    )
