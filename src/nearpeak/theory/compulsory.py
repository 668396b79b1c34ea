"""What any program of a whole step must do: live calls, compulsory bytes, arithmetic without recomputation."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearpeak.core.work import NO_WORK, Work
from nearpeak.core.workload import Call, Use, Workload

GIVEN_KINDS = ("weight", "state", "kv_cache", "input")
"""Kinds of storage whose content is there before the step."""
KEPT_KINDS = ("weight", "state", "kv_cache", "output")
"""Kinds of storage whose new content outlives the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compulsory:
    """The least work of the whole step, for any number of kernels and any fusion."""

    work: Work
    """Arithmetic without recomputation, and the bytes that must cross the pins."""
    dead_count: int
    """Calls whose results nobody uses."""


def compulsory(workload: Workload, works: Sequence[Work | None]) -> Compulsory:
    """Return the least work of the step.

    Args:
        works: work of each call, none where no rule covers it.
    """
    live = _live_calls(workload)
    arithmetic = NO_WORK
    totals: dict[int, tuple[Work, int]] = {}
    for call, work, alive in zip(workload.calls, works, live, strict=True):
        if alive and work is not None:
            count = totals[id(work)][1] if id(work) in totals else 0
            totals[id(work)] = (work, count + call.call_count)
    for work, count in totals.values():
        arithmetic = arithmetic + _without_bytes(work) * count
    reads, writes = _compulsory_bytes(workload, live)
    work = Work(
        flop=arithmetic.flop,
        special_count=arithmetic.special_count,
        read_bytes=reads,
        write_bytes=writes,
        launch_count=arithmetic.launch_count,
    )
    return Compulsory(work=work, dead_count=len(live) - sum(live))


def _without_bytes(work: Work) -> Work:
    """Return the arithmetic of `work` that no other program could avoid."""
    flop = {kind: amount - work.recompute_flop.get(kind, 0) for kind, amount in work.flop.items()}
    return Work(flop=flop, special_count=work.special_count, launch_count=work.launch_count)


def _live_calls(workload: Workload) -> list[bool]:
    """Return for each call whether something that outlives the step depends on it.

    A list of unrelated cases has no storages and is live throughout; so is a call that writes none.
    """
    wanted = {number for number, buffer in enumerate(workload.buffers) if buffer.kind in KEPT_KINDS}
    live = [False] * len(workload.calls)
    for index in range(len(workload.calls) - 1, -1, -1):
        call = workload.calls[index]
        if not call.writes or any(use.buffer in wanted for use in call.writes):
            live[index] = True
            wanted.update(use.buffer for use in call.reads)
    return live


def _compulsory_bytes(workload: Workload, live: Sequence[bool]) -> tuple[int, int]:
    """Return the bytes that must be read and written, each storage once."""
    if not workload.buffers:
        return 0, 0
    reads: dict[int, list[Use]] = {}
    writes: dict[int, list[Use]] = {}
    written: dict[int, int] = {}
    for call, alive in zip(workload.calls, live, strict=True):
        if alive and call.case is not None:  # a call without a rule adds nothing that is sure
            _collect(call, workload, written, reads, writes)
        for use in call.writes:
            written[use.buffer] = written.get(use.buffer, 0) + use.bytes
    return sum(map(_union_bytes, reads.values())), sum(map(_union_bytes, writes.values()))


def _collect(
    call: Call, workload: Workload, written: dict[int, int], reads: dict[int, list[Use]], writes: dict[int, list[Use]]
) -> None:
    """Note what `call` reads from before the step, and what it leaves behind after it."""
    for use in call.reads:
        left_bytes = use.bytes - written.get(use.buffer, 0)  # what the step wrote itself need not be read again
        if left_bytes > 0 and workload.buffers[use.buffer].kind in GIVEN_KINDS:
            reads.setdefault(use.buffer, []).append(dataclasses.replace(use, bytes=left_bytes))
    for use in call.writes:
        if workload.buffers[use.buffer].kind in KEPT_KINDS:
            writes.setdefault(use.buffer, []).append(use)


def _union_bytes(uses: Iterable[Use]) -> int:
    """Return the bytes of one storage that are surely touched: dense views by their union, others by the largest.

    >>> spans = ((0, 4), (2, 6))
    >>> _union_bytes([Use(buffer=0, bytes=4, start_bytes=start, stop_bytes=stop) for start, stop in spans])
    6
    """
    dense = sorted({(u.start_bytes, u.stop_bytes) for u in uses if u.bytes == u.stop_bytes - u.start_bytes})
    covered, reached = 0, -1
    for start, stop in dense:
        covered += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return max([covered, *(use.bytes for use in uses)])
