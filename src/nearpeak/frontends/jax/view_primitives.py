"""JAX primitives that compute nothing: views of the same storage with another shape."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nearpeak.core.work.tensor import Tensor

Params = Mapping[str, Any]


def strides_of(x: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor, those of contiguous ones written out.

    >>> strides_of(Tensor(shape=(2, 3, 4), dtype="fp32"))
    (12, 4, 1)
    """
    if x.strides is not None:
        return x.strides
    return tuple(prod(x.shape[axis + 1 :]) for axis in range(len(x.shape)))


def _transposed(x: Tensor, params: Params, _shape: tuple[int, ...]) -> Tensor:
    order, steps = params["permutation"], strides_of(x)
    return replace(x, shape=tuple(x.shape[i] for i in order), strides=tuple(steps[i] for i in order))


def _sliced(x: Tensor, params: Params, shape: tuple[int, ...]) -> Tensor:
    every = params["strides"] or (1,) * len(shape)
    steps, starts = strides_of(x), params["start_indices"]
    offset = x.offset + sum(start * step for start, step in zip(starts, steps, strict=True))
    strides = tuple(step * skip for step, skip in zip(steps, every, strict=True))
    return replace(x, shape=shape, strides=strides, offset=offset)


def _broadcast(x: Tensor, params: Params, shape: tuple[int, ...]) -> Tensor:
    strides = [0] * len(shape)
    for axis, place in enumerate(params["broadcast_dimensions"]):
        strides[int(place)] = strides_of(x)[axis] if x.shape[axis] == shape[int(place)] else 0
    return replace(x, shape=shape, strides=tuple(strides))


def _reshaped(x: Tensor, _params: Params, shape: tuple[int, ...]) -> Tensor | None:
    """Return the view of another shape; none where the elements would have to move."""
    if x.strides is None or strides_of(replace(x, strides=None)) == x.strides:
        return replace(x, shape=shape, strides=None)
    wide = [(extent, step) for extent, step in zip(x.shape, x.strides, strict=True) if extent != 1]
    if [extent for extent, _ in wide] != [extent for extent in shape if extent != 1]:
        return None
    steps = iter(step for _, step in wide)
    return replace(x, shape=shape, strides=tuple(0 if extent == 1 else next(steps) for extent in shape))


def parts(x: Tensor, axis: int, sizes: Sequence[int]) -> Iterator[Tensor]:
    """Yield the pieces of `x` along an axis.

    >>> [part.offset for part in parts(Tensor(shape=(2, 6), dtype="fp32"), 1, (2, 4))]
    [0, 2]
    """
    start, steps = 0, strides_of(x)
    for size in sizes:
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        yield replace(x, shape=shape, strides=steps, offset=x.offset + start * steps[axis])
        start += size


def _same(x: Tensor, _params: Params, shape: tuple[int, ...]) -> Tensor:
    return replace(x, shape=shape) if shape == x.shape else replace(x, shape=shape, strides=None)


VIEWS: Mapping[str, Callable[[Tensor, Params, tuple[int, ...]], Tensor | None]] = {
    "transpose": _transposed, "slice": _sliced, "broadcast_in_dim": _broadcast, "reshape": _reshaped,
    "squeeze": _reshaped, "expand_dims": _reshaped, "stop_gradient": _same, "sharding_constraint": _same, "name": _same,
    "pvary": _same, "reduce_precision": _same, "bitcast_convert_type": _same,
}  # fmt: skip
"""By primitive: the view of one operand, or none where its elements must be copied."""
