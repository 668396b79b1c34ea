"""Compulsory work of a whole step: live calls, compulsory bytes, arithmetic without recomputation."""

import dataclasses
from collections.abc import Hashable, Sequence

from nearpeak.bounds.step.step_barrier import step_barrier
from nearpeak.bounds.terms.symmetric_products import gram_work, is_gram
from nearpeak.bounds.value_facts.call_operands import tensors_of
from nearpeak.core.work.storage_unions import union_bytes
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import NO_WORK, Work
from nearpeak.core.work.workload import Call, Use, Workload

INITIAL_KINDS = ("weight", "state", "kv_cache", "input")
"""Kinds of storage whose content is there before the step."""
PERSISTENT_KINDS = ("weight", "state", "kv_cache", "input", "output")
"""Kinds of storage whose new content outlives the step."""


def compulsory(workload: Workload, works: Sequence[Work | None], live: Sequence[bool] | None = None) -> Work:
    """Return the least work of the step, for any number of kernels and any fusion.

    Args:
        works: work of each call, none where no rule covers it.
        live: what `live_calls` gives, where the caller has it.
    """
    live = live_calls(workload) if live is None else live
    totals: dict[tuple[int, bool], tuple[Work, int]] = {}
    for call, work, alive, again in zip(workload.calls, works, live, repeated_calls(workload), strict=True):
        if alive and work is not None and not again:
            key = (id(work), is_gram(call))
            known, count = totals.get(key) or (gram_work(call, work) if key[1] else work, 0)
            totals[key] = (known, count + call.call_count)
    arithmetic = sum((without_bytes(work) * count for work, count in totals.values()), NO_WORK)
    reads, writes = _compulsory_bytes(workload, live)
    barrier = step_barrier(workload, works, live, INITIAL_KINDS, PERSISTENT_KINDS)
    return dataclasses.replace(arithmetic, read_bytes=reads, write_bytes=writes, barrier=barrier)


def touched_work(read_bytes: int | None, write_bytes: int | None, work: Work) -> Work:
    """Return `work` with no more bytes than the storages that a call touches; none where it names none.

    A case counts each operand; a call may name one storage twice (x times x), or a broadcast row.
    """
    reads = work.read_bytes if read_bytes is None else min(read_bytes, work.read_bytes)
    writes = work.write_bytes if write_bytes is None else min(write_bytes, work.write_bytes)
    if (reads, writes) == (work.read_bytes, work.write_bytes):
        return work
    return dataclasses.replace(
        work,
        read_bytes=reads,
        write_bytes=writes,
        contraction=None,  # an element in two roles, or a group that is a broadcast row, breaks the argument
        barrier=None,
    )


def live_calls(workload: Workload) -> list[bool]:
    """Return for each call whether something that outlives the step depends on it.

    A list of unrelated cases has no storages and is live throughout. A call that names no storage belongs to the
    one before it, which stands for several cases.
    """
    if not workload.buffers:
        return [True] * len(workload.calls)
    wanted = {number for number, buffer in enumerate(workload.buffers) if buffer.kind in PERSISTENT_KINDS}
    live = [False] * len(workload.calls)
    followers: list[int] = []
    for index in range(len(workload.calls) - 1, -1, -1):
        call = workload.calls[index]
        if not call.reads and not call.writes:
            followers.append(index)
            continue
        is_effect = (
            call.case is None and not call.writes
        )  # an unknown call that gives no tensor is there for some effect
        if is_effect or not wanted.isdisjoint([use.buffer for use in call.writes]):
            for position in (index, *followers):
                live[position] = True
            overwritten = [use.buffer for use in call.writes if use.bytes == workload.buffers[use.buffer].bytes]
            wanted.difference_update(overwritten)
            wanted.update([use.buffer for use in call.reads])
        followers = []
    return live


def repeated_calls(workload: Workload) -> list[bool]:
    """Return for each call whether it computes again, from the same contents, what a forward call computed.

    The results of such a call are the contents that the forward call left, so that whole repeated chains are found.
    """
    contents: list[int] = list(range(len(workload.buffers)))
    forward: dict[Hashable, tuple[int, ...]] = {}
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


def _key(call: Call, contents: list[int]) -> Hashable:
    """Return what a call computes: its case on these contents."""
    return (call.case, *[(contents[u.buffer], u.start_bytes, u.stop_bytes, u.bytes) for u in call.reads])


def without_bytes(work: Work) -> Work:
    """Return the arithmetic of `work` that no other program could avoid."""
    flop = {kind: amount - work.recompute_flop.get(kind, 0) for kind, amount in work.flop.items()}
    return Work(
        flop=flop,
        special_count=work.special_count,
        comm_bytes=work.comm_bytes,
        launch_count=work.launch_count,
    )


def _compulsory_bytes(workload: Workload, live: Sequence[bool]) -> tuple[int, int]:
    """Return the bytes that must be read and written, each storage once."""
    reads, writes = _outer_uses(workload, live)
    kept_bytes = {number: workload.buffers[number].kept_bytes for number in writes}
    sizes = {number: union_bytes(uses) for number, uses in writes.items()}
    left = sum(
        size if kept_bytes[number] is None else min(size, kept_bytes[number] or 0) for number, size in sizes.items()
    )
    return sum(map(union_bytes, reads.values())), left


def initial_reads(workload: Workload, live: Sequence[bool]) -> dict[int, int]:
    """Return the bytes that the live calls must read of each storage whose content is there before the step."""
    return {number: union_bytes(uses) for number, uses in _outer_uses(workload, live)[0].items()}


def _outer_uses(workload: Workload, live: Sequence[bool]) -> tuple[dict[int, list[Use]], dict[int, list[Use]]]:
    """Return the initial contents that are read and the final contents that are written, by storage."""
    reads: dict[int, list[Use]] = {}
    writes: dict[int, list[Use]] = {}
    written: dict[int, int] = {}
    for call, alive in zip(workload.calls, live, strict=True):
        if alive and call.case is not None:  # a call without a rule adds nothing that is sure
            _collect(call, workload, written, reads, writes)
        for use in call.writes:
            written[use.buffer] = written.get(use.buffer, 0) + use.bytes
    return reads, writes


def _collect(
    call: Call, workload: Workload, written: dict[int, int], reads: dict[int, list[Use]], writes: dict[int, list[Use]]
) -> None:
    """Collect the initial contents that `call` reads and the final contents that it writes."""
    for use in _in_runs(call, [use for use in call.reads if workload.buffers[use.buffer].kind in INITIAL_KINDS]):
        own_bytes = written.get(use.buffer, 0)  # what the step wrote itself need not be read again
        if own_bytes < use.bytes:
            left = use if own_bytes == 0 else dataclasses.replace(use, bytes=use.bytes - own_bytes, runs=())
            reads.setdefault(use.buffer, []).append(left)
    for use in _in_runs(call, [use for use in call.writes if workload.buffers[use.buffer].kind in PERSISTENT_KINDS]):
        writes.setdefault(use.buffer, []).append(use)


def _in_runs(call: Call, uses: Sequence[Use]) -> Sequence[Use]:
    """Return uses with the blocks in which their views lie, where the call states layouts."""
    if call.form is None or all(use.bytes == use.stop_bytes - use.start_bytes for use in uses):
        return uses
    layouts = [(layout, buffer) for _, buffer, layout, _ in tensors_of(call)]
    layouts += zip(call.form.results, call.storages[len(layouts) :], strict=False)
    runs: dict[tuple[int, int, int], tuple[tuple[int, int], ...]] = {}
    for layout, buffer in layouts:
        if layout is not None:
            tensor = Tensor(shape=layout.shape, dtype=layout.dtype, strides=layout.strides, offset=layout.offset)
            place = (buffer, *tensor.span_bytes)
            runs[place] = tensor.block_runs if runs.get(place, tensor.block_runs) == tensor.block_runs else ()
    return [dataclasses.replace(use, runs=runs.get((use.buffer, use.start_bytes, use.stop_bytes), ())) for use in uses]
