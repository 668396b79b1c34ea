"""Traffic term of a whole step: an input reduced as a whole and needed again is read twice or must stay on chip."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Call, Use, Workload

_SETTLED_EARLY = ("any", "all", "max", "min", "min_max", "max_index", "min_index", "argmax", "argmin")
"""Reductions whose result may be known before every element was read, or settles what an element gives:
maximum(x, max(x)) is max(x), so that no element is needed again."""


def step_barrier(
    workload: Workload,
    works: Sequence[Work | None],
    live: Sequence[bool],
    initial: Sequence[str],
    final: Sequence[str],
) -> Barrier | None:
    """Return the barrier of the largest group among the live calls; none where no initial tensor is needed twice.

    Two kinds are recognised: one call that normalises an initial tensor, and a reduction of a whole initial tensor to
    one element on which a later element-wise call of the same tensor depends (x / norm(x)). The result must outlive
    the step whole: of softmax(x) @ v, say, a program keeps running sums and rescales them, and reads x once.

    Args:
        initial: kinds of storage whose content is there before the step.
        final: kinds of storage whose content outlives it.
    """
    last = {use.buffer: call for call in workload.calls for use in call.writes}
    written: set[int] = set()
    needs: dict[int, set[Use]] = {}
    barriers: list[Barrier] = []
    for call, work, alive in zip(workload.calls, works, live, strict=True):
        fresh = [
            use for use in call.reads if workload.buffers[use.buffer].kind in initial and use.buffer not in written
        ]
        if alive and call.case is not None and work is not None and _outlives(call, workload, last, final):
            if (
                work.barrier is not None
                and len(fresh) == len(call.reads)
                and (bool(call.reads) and sum(use.bytes for use in call.reads) >= work.read_bytes)
            ):
                barriers.append(work.barrier)
            barriers += _second_reads(call, fresh, needs)
        written.update(use.buffer for use in call.writes)
        _follow(call, fresh, needs)
    return max(barriers, key=lambda barrier: (barrier.group_bytes, barrier.group_count), default=None)


def _outlives(call: Call, workload: Workload, last: Mapping[int, Call], final: Sequence[str]) -> bool:
    """Say whether the first result of the call is kept whole, as the call left it."""
    if not call.writes or last[call.writes[0].buffer] is not call:
        return False
    use, buffer = call.writes[0], workload.buffers[call.writes[0].buffer]
    return buffer.kind in final and buffer.kept_bytes in (None, buffer.bytes) and use.bytes == buffer.bytes


def _second_reads(call: Call, fresh: Sequence[Use], needs: Mapping[int, set[Use]]) -> Iterator[Barrier]:
    """Give the barriers of an element-wise call that reads, beside x, one element that all of x went into."""
    assert call.case is not None
    axes, formats = dict(call.case.axes), dict(call.case.dtypes)
    elements = axes.get("elements", 0)
    if call.case.op != "elementwise" or call.case.phase != "forward" or elements <= 1:
        return
    singles = [use for use in call.reads if use.bytes * 8 == dtype_of(formats["b_dtype"]).bits_count]
    reduced = {read for use in singles if axes.get("b") == 1 for read in needs.get(use.buffer, ())}
    bits = min(dtype_of(formats[name]).bits_count for name in ("a_dtype", "out_dtype"))
    if axes.get("a") == elements and reduced.intersection(fresh):
        yield Barrier(group_count=1, group_bytes=elements * bits // 8)


def _follow(call: Call, fresh: Sequence[Use], needs: dict[int, set[Use]]) -> None:
    """Note which given tensors went whole into the one element that the call writes."""
    known = {read for use in call.reads for read in needs.get(use.buffer, ())}
    for use in call.writes:
        needs.pop(use.buffer, None)
    if call.case is None or len(call.writes) != 1:
        return
    axes, attributes = dict(call.case.axes), dict(call.case.attributes)
    if call.case.op == "reduce" and axes["outputs"] == 1 and attributes["function"] not in _SETTLED_EARLY:
        known = set(fresh) if len(call.reads) == 1 and axes["read"] in (0, axes["reduced"]) else set()
    elif call.case.op != "elementwise" or axes.get("elements") != 1:
        return
    if known:
        needs[call.writes[0].buffer] = known
