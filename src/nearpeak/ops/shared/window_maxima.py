"""Maxima over windows: references, the scattered gradient, and matching of adaptive pooling."""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import Matcher

Spans = Sequence[Sequence[tuple[int, int]]]
"""For each spatial dimension, first position and end of each window."""


def returned_work(dtype: DType, inputs: int, outputs: int) -> Work:
    """Return the least work of adding each output's gradient where its maximum was, as the saved indices say."""
    outputs = unless_empty(inputs, outputs)
    return Work(
        flop={unit(dtype): outputs},
        read_bytes=dtype.bytes(outputs) + INDEX.bytes(outputs),
        write_bytes=dtype.bytes(inputs),
    )


def maxima(plane: Any, spans: Spans) -> tuple[Any, Any]:
    """Return the maxima of one plane's windows and their flat positions; the first one wins a tie.

    >>> maxima(np.array([3, 1, 2]), [[(0, 2), (1, 3)]])
    (array([3, 2]), array([0, 2]))
    """
    places = np.arange(plane.size).reshape(plane.shape)
    positions = [
        places[window][np.unravel_index(plane[window].argmax(), plane[window].shape)]
        for window in [tuple(slice(*span) for span in cell) for cell in product(*spans)]
    ]
    where = np.array(positions, dtype=np.int64).reshape([len(row) for row in spans])
    return plane.reshape(-1)[where], where


def all_maxima(x: Any, spans: Sequence[Spans]) -> tuple[Any, Any]:
    """Return maxima and positions of every plane of x[batch,channels,...], each with spans of its own."""
    planes = x.reshape(-1, *x.shape[2:])
    pairs = [maxima(plane, plane_spans) for plane, plane_spans in zip(planes, spans, strict=True)]
    shape = (*x.shape[:2], *(len(row) for row in spans[0]))
    return np.stack([best for best, _ in pairs]).reshape(shape), np.stack([at for _, at in pairs]).reshape(shape)


def references(winners: Callable[[Any, Any], tuple[Any, Any]]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return both references of an operator of which `winners` gives maxima and positions, by arrays and arguments."""

    def forward(arrays: Any, **arguments: Any) -> dict[str, Any]:
        best, where = winners(arrays, arguments)
        return {"output": best, "indices": where} if arguments["indices"] else {"output": best}

    def backward(arrays: Any, **arguments: Any) -> dict[str, Any]:
        _, where = winners(arrays, arguments)
        return {"grad_input": returned(arrays["grad_output"], where, arrays["input"].shape)}

    return forward, backward


def returned(grad: Any, where: Any, shape: Sequence[int]) -> Any:
    """Return zeros of `shape` [batch, channels, ...] to which gradients are added at flat positions, if any.

    Positions of none are -1.
    """
    planes = np.zeros((prod(shape[:2]), prod(shape[2:])))
    rows = zip(planes, grad.reshape(len(planes), -1), where.reshape(len(planes), -1), strict=True)
    for plane, values, places in rows:
        np.add.at(plane, places[places >= 0], values[places >= 0])
    return planes.reshape(shape)


def overloads(name: str, matcher: Matcher) -> dict[str, Matcher]:
    """Return the ATen overloads of `name` in two and three dimensions and of its gradient."""
    return {
        f"aten.{name}{rank}d{end}": matcher
        for rank in (2, 3)
        for end in (".default", "_backward.default", "_backward.grad_input")
    }
