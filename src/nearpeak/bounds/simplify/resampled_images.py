"""Resized images as products with matrices of weights, one per dimension, so that convolutions can be formed first."""

import dataclasses
from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np

from nearpeak.bounds.simplify.affine_views import View, view
from nearpeak.bounds.simplify.element_patterns import Bits
from nearpeak.bounds.simplify.graph_builder import Lift, Ref, Site
from nearpeak.bounds.simplify.linear_algebra import LIFTS, is_float
from nearpeak.bounds.simplify.operand_facts import is_weights, source_of
from nearpeak.bounds.simplify.product_sums import contracts, merged, opened, placed, product, term_of
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall

_ROUNDING = 1e-4
"""Distance from a source within which a position may be that of the source itself."""
WEIGHTS = "nearpeak.resampling.default"
"""Operator that gives the matrix of weights [position, source]."""
_MOST_WEIGHTS = 2**22
"""Elements beyond which a matrix of weights is not written down."""


def _resized(site: Site) -> list[int] | None:
    """Read a change of size; by whole factors that repeat the nearest element, as a view that repeats."""
    graph, name = site.graph, "self" if site.is_tensor("self") else "input"
    number, shape = site.node(name), site.shapes[0]
    sizes, rank = graph[number].shape, len(shape) - 2
    names = ("scales",) if rank == 1 else ("scales_d", "scales_h", "scales_w")[3 - rank :]
    modes = [(site.packet, site.number(scale, 0.0), bool(site.args.get("align_corners"))) for scale in names]
    if 0 in sizes or any(n * wide > _MOST_WEIGHTS for n, wide in zip(sizes[2:], shape[2:], strict=True)):
        return None
    nearest = "nearest" in site.packet
    if nearest and all(_is_repeat(n, wide, mode) for n, wide, mode in zip(sizes[2:], shape[2:], modes, strict=True)):
        groups = [((axis, 1, n), (-1, 0, wide // n)) for axis, (n, wide) in enumerate(zip(sizes, shape, strict=True))]
        return [view(graph, number, groups, (0,) * len(sizes))]
    if not is_float(site.dtype):
        return None
    ways = zip(sizes[2:], shape[2:], modes, strict=True)
    matrices = tuple(_weights(graph, n, wide, mode, site.dtype) for n, wide, mode in ways)
    result = _weighted(graph, number, matrices, site.dtype)
    graph.resized[result] = (number, matrices)
    return [result]


def _weighted(graph: Graph, number: int, matrices: Sequence[int], dtype: str) -> int:
    """Return an image with each dimension behind batch and channels multiplied by a matrix."""
    before, after = ([f"{side}{axis}" for axis in range(len(matrices))] for side in "io")
    operands = [(number, ["b", "c", *before])]
    operands += [(matrix, [o, i]) for matrix, i, o in zip(matrices, before, after, strict=True)]
    return product(graph, operands, ["b", "c", *after], dtype)


_Mode = tuple[str, float, bool]
"""Operator, the scale that it was given (0 for none), whether corners are aligned."""


def _is_repeat(n: int, wide: int, mode: _Mode) -> bool:
    """Say whether each element stands as often as every other, side by side."""
    return not wide % n and bool((_nearest(n, wide, mode) == np.arange(wide) // (wide // n)).all())


def _nearest(n: int, wide: int, mode: _Mode) -> Any:
    """Return the source of each position.

    PyTorch rounds the scale to single precision on some devices and in some kernels, so that the first of several
    repeats may be the source before it: at 41, 47, 55 or 61 times, for example. No element is read less and no product
    formed less often there, so that the fraction itself stands for all of them.

    Source: PyTorch 2.13, aten/src/ATen/native/UpSample.h, nearest_idx and nearest_exact_idx.

    >>> _nearest(2, 5, ("upsample_nearest1d", 0.0, False)).tolist()
    [0, 0, 0, 1, 1]
    """
    name, scale, _ = mode
    positions = np.arange(wide)
    if "exact" not in name and wide in (n, 2 * n):
        return positions // (wide // n)
    places = (positions + 0.5 * ("exact" in name)) * (1.0 / scale if scale > 0 else n / wide)
    return np.minimum(np.floor(places + _ROUNDING).astype(np.int64), n - 1)


def _pattern(n: int, wide: int, mode: _Mode) -> Any:
    """Return which sources have a weight at each position, a boolean array [position, source]."""
    name, scale, corners = mode
    pattern = np.zeros((wide, n), dtype=bool)
    if "nearest" in name:
        pattern[np.arange(wide), _nearest(n, wide, mode)] = True
        return pattern
    step = (n - 1) / max(wide - 1, 1) if corners else 1.0 / scale if scale > 0 else n / wide
    cubic, smooth = "cubic" in name, name.endswith("_aa")
    for position in range(wide):
        centre = step * position if corners else step * (position + 0.5) - 0.5
        if smooth:
            reach = (2 if cubic else 1) * max(step, 1.0)
            low, high = floor(centre + 1 - reach), floor(centre + 1 + reach)
        else:
            centre = centre if cubic else max(centre, 0.0)
            first = floor(centre + _ROUNDING)
            is_source = abs(centre - first) < _ROUNDING
            low, high = (first, first + 1) if is_source else (first - 1, first + 3) if cubic else (first, first + 2)
        pattern[position, np.clip(np.arange(low, max(high, low + 1)), 0, n - 1)] = True
    return pattern


def _weights(graph: Graph, n: int, wide: int, mode: _Mode, dtype: str) -> int:
    """Return the matrix of weights along one dimension: whatever they are, it is no product of unknown numbers."""
    arguments = (("sources", n), ("positions", wide), ("operator", mode[0]), ("scale", mode[1]), ("corners", mode[2]))
    number = graph.add("call", (), (wide, n), dtype, OperatorCall(WEIGHTS, arguments))
    if (number, "zero") not in graph.facts:
        graph.facts[number, "zero"] = Bits(_pattern(n, wide, mode))
        graph.facts[number, "weights"] = None
        graph.parts[number] = (graph.call, 0, 1)  # of the call nothing that products would take
        graph.owner.pop(number, None)
    return number


def _convolution(site: Site) -> list[int] | None:
    """Read a convolution; over a resized image, padding is added to the matrices of weights."""
    graph, x = site.graph, site.node("input")
    rank = len(graph[x].shape) - 2
    image = _image(graph, x, site.dtype) if rank > 0 and not site.args.get("transposed") else None
    if image is None:
        return LIFTS["convolution"](site)
    pads = site.numbers("padding", rank)
    number, matrices = image
    if (carrier := graph.carriers.get(source_of(graph, x))) is not None and (number, matrices) == graph.resized.get(x):
        graph.carriers.setdefault(source_of(graph, number), carrier)
    padded = [
        graph.add("spread", (matrix,), (wide + 2 * p, n), site.dtype, ((p, 1), (0, 1))) if p else matrix
        for p, matrix in zip(pads, matrices, strict=True)
        for wide, n in [graph[matrix].shape]
    ]
    args = {**site.args, "input": Ref(_weighted(graph, number, padded, site.dtype)), "padding": (0,) * rank}
    return LIFTS["convolution"](dataclasses.replace(site, args=args))


def _gradients(site: Site) -> None:
    """Note of gradients of a convolution over a resized image the convolution: none of them takes more than it.

    The result, the gradient of the image and that of the weights are each linear in the two others, so that a way of
    forming one gives ways of forming the others of as many products.
    """
    graph, x = site.graph, site.node("input")
    rank, mask = len(graph[x].shape) - 2, site.args.get("output_mask")
    if rank < 1 or site.args.get("transposed") or not isinstance(mask, tuple) or _image(graph, x, site.dtype) is None:
        return
    args = {**site.args, "bias": None}
    shape = graph[site.node("grad_output")].shape
    made = _convolution(dataclasses.replace(site, packet="convolution", args=args, shapes=(shape,)))
    whole = None if made is None else _one_product(graph, source_of(graph, made[0]))
    if whole is not None:
        graph.gradients[graph.call] = (whole, sum(map(bool, mask[:2])))


def _one_product(graph: Graph, number: int) -> int | None:
    """Return a product over a resized image as one with the matrices of weights; none where that fails."""
    if not contracts(graph[number]):
        return None
    term, place = opened(graph, graph[number]), 0
    while place < len(term.operands):
        operand = term.operands[place][0]
        source = graph[source_of(graph, operand)]
        if source.kind == "product" and any(is_weights(graph, factor) for factor in source.inputs):
            longer = merged(graph, term, place, term_of(graph, operand))
            if longer is None:
                return None
            term, place = longer, 0
        else:
            place += 1
    made = placed(graph, term, graph[number].dtype)
    whole = number if made is None else source_of(graph, made)
    return whole if contracts(graph[whole]) else None


def _image(graph: Graph, number: int, dtype: str) -> tuple[int, tuple[int, ...]] | None:
    """Return what a resized image was made of, and its matrices of weights; none of other images."""
    if number in graph.resized:
        return graph.resized[number]
    node = graph[number]
    if not isinstance(node.options, View) or not is_float(dtype):
        return None
    last = [group[-1] if group else (0, 1, 1) for group in node.options.groups]
    times = [extent if place < 0 else 1 for place, _, extent in last]
    pairs = list(zip(node.shape[2:], times[2:], strict=True))
    if times[:2] != [1, 1] or max(times) == 1 or any(wide * wide // s > _MOST_WEIGHTS for wide, s in pairs):
        return None
    groups = [group[:-1] if group and group[-1][0] < 0 else group for group in node.options.groups]
    image = view(graph, node.inputs[0], groups, node.options.starts)
    mode = ("nearest_exact", 0.0, False)
    return image, tuple(_weights(graph, wide // s, wide, mode, dtype) for wide, s in pairs)


_RESIZES = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
RESAMPLED_LIFTS: dict[str, Lift] = {
    **dict.fromkeys(_RESIZES, _resized),
    "convolution": _convolution,
    "convolution_backward": _gradients,
}
"""Readers by operator."""
