"""Placement of each cast of a step: the operator it serves, and the casts that remain after compilation."""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Call, Workload
from nearpeak.ops import OPS

CAST = "aten._to_copy.default"
"""Operator that changes a format."""
NOBODY = -1
"""No call: a weight or input that is cast, a result that nothing of the step reads."""
_GENERATED = ("pointwise", "norm", "reduction")
_ALSO = ("copy", "fill", "embedding", "rotary_embedding")


class CastPlace(NamedTuple):
    """Producer and consumers of one cast."""

    maker: int
    """Position of the call that made what is cast; NOBODY for weights and inputs."""
    readers: tuple[int, ...]
    """Positions of the calls that read the result."""
    alone: bool
    """Whether nothing else needs what it casts, which then need not be written at all."""


def is_cast(call: Call) -> bool:
    """Say whether a call changes a format, and does nothing else."""
    return call.operator == CAST and call.form is not None and ends_of(call)[0] != ends_of(call)[1]


def ends_of(call: Call) -> tuple[str, str]:
    """Return the formats before and after a cast."""
    return _source(call).dtype, _result(call).dtype


def places_of(workload: Workload) -> dict[int, CastPlace]:
    """Return the casts of a step by position, with their producers and consumers."""
    calls, kinds = workload.calls, [buffer.kind for buffer in workload.buffers]
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}  # of what each call wrote
    maker: dict[int, int] = {}
    returned: set[int] = set()
    for position, call in enumerate(calls):
        for buffer in {use.buffer for use in call.reads}:
            if buffer in writer:
                readers.setdefault(writer[buffer], []).append(position)
        if is_cast(call):
            maker[position] = next((writer[use.buffer] for use in call.reads if use.buffer in writer), NOBODY)
            returned.update({position} if any(kinds[use.buffer] == "output" for use in call.reads) else ())
        writer.update((use.buffer, position) for use in call.writes)
    return {
        position: CastPlace(
            made, tuple(readers.get(position, ())), readers.get(made, []) == [position] and position not in returned
        )
        for position, made in maker.items()
    }


def owners_of(calls: Sequence[Call], places: dict[int, CastPlace]) -> dict[int, int]:
    """Return for each cast the call that it is made for; NOBODY where nothing follows.

    In the forward pass that is the call that reads it. In the backward pass it is the call whose gradient it brings to
    the format of the forward pass: there the cast stood before the reader, so here it stands behind the maker.
    """

    def owner(position: int) -> int:
        place, seen = places[position], position
        if calls[position].phase == "backward":
            while place.maker in places:
                place = places[place.maker]
            return place.maker if place.maker != NOBODY else _next(calls, places, seen)
        while place.readers and place.readers[0] in places:
            seen, place = place.readers[0], places[place.readers[0]]
        return place.readers[0] if place.readers else _next(calls, places, seen)

    return {position: owner(position) for position in places}


def _next(calls: Sequence[Call], places: dict[int, CastPlace], position: int) -> int:
    """Return the next call that is no cast."""
    return next((at for at in range(position + 1, len(calls)) if at not in places), NOBODY)


def kept_when_compiled(
    calls: Sequence[Call], places: dict[int, CastPlace], moving_s: Callable[[int], float]
) -> tuple[int, float]:
    """Return how many casts stay separate kernels when a compiler fuses the others, and the time saved.

    A kernel that the compiler writes itself casts what it holds: behind one, only the result is written, and its own
    result not at all if nothing else reads it; before such kernels, they read the original instead of the result. What
    a library's kernel reads straight from a weight or an input needs a kernel that casts it.

    Args:
        moving_s: time that a number of bytes takes.
    """
    kept_count, gone_s = 0, 0.0
    for position, place in places.items():
        count = calls[position].call_count
        ways = list(_ways(calls, places, position, place))
        gone_s += count * max((moving_s(each) for each in ways), default=0.0)
        kept_count += 0 if ways else count
    return kept_count, gone_s


def _ways(calls: Sequence[Call], places: dict[int, CastPlace], position: int, place: CastPlace) -> Iterator[int]:
    """Yield the bytes that each way to fuse a cast saves: behind what made its operand, and before what reads it."""
    layouts = (_source(calls[position]), _result(calls[position]))
    before, after = (dtype_of(layout.dtype).bytes(prod(layout.shape)) for layout in layouts)
    if place.maker != NOBODY and _generated(calls[place.maker], place.maker in places):
        yield before * (2 if place.alone else 1)
    if place.readers and all(_generated(calls[layout], layout in places) for layout in place.readers):
        yield before + after + len(place.readers) * (after - before)


def _generated(call: Call, cast: bool) -> bool:
    """Say whether a compiler writes the kernel of a call itself, and can put casts into it."""
    if cast:
        return True
    return call.case is not None and (call.case.op in _ALSO or OPS[call.case.op].family in _GENERATED)


def _source(call: Call) -> Layout:
    assert call.form is not None
    return next(value for _, value in call.form.arguments if isinstance(value, Layout))


def _result(call: Call) -> Layout:
    assert call.form is not None
    return call.form.results[0]
