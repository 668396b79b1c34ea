"""Windows of images that lie among padding: padding itself, pooling by averages, patches written out."""

from collections.abc import Sequence
from math import isfinite, prod

from nearpeak.bounds.simplify.affine_views import reshape, selected, view
from nearpeak.bounds.simplify.graph_builder import Lift, Site
from nearpeak.bounds.simplify.product_sums import product
from nearpeak.bounds.simplify.value_graph import Graph


def windows(
    graph: Graph, x: int, places: Sequence[tuple[int, int]], sizes: Sequence[int], outs: Sequence[int],
    strides: Sequence[int], kernel: Sequence[int], dilations: Sequence[int],
) -> int:  # fmt: skip
    """Return [batch, channel, position…, tap…] of a tensor that lies among zeros."""
    shape = graph[x].shape
    if tuple(sizes) != shape[2:] or any(place != (0, 1) for place in places):
        x = graph.add("spread", (x,), (*shape[:2], *sizes), graph[x].dtype, ((0, 1), (0, 1), *places))
    axes = range(2, 2 + len(sizes))
    groups = [
        ((0, 1, shape[0]),), ((1, 1, shape[1]),),
        *(((axis, s, o),) for axis, s, o in zip(axes, strides, outs, strict=True)),
        *(((axis, d, k),) for axis, d, k in zip(axes, dilations, kernel, strict=True)),
    ]  # fmt: skip
    return view(graph, x, groups, (0,) * (2 + len(sizes)))


def _padded(site: Site) -> list[int] | None:
    """Read padding with a number; a negative one cuts off."""
    pads, graph, number = site.numbers("pad", 1), site.graph, site.node("self")
    value, rank = site.number("value", 0.0), len(site.shapes[0])
    if len(pads) % 2 or not isfinite(value):
        return None
    sides = [pads[place : place + 2] for place in range(0, len(pads), 2)][::-1]
    for axis, (before, after) in zip(range(rank - len(sides), rank), sides, strict=True):
        extent = graph[number].shape[axis] + min(before, 0) + min(after, 0)
        if extent < 1:
            return None
        number = selected(graph, number, axis, max(-before, 0), extent)
    whole = [(0, 0)] * (rank - len(sides)) + [(max(before, 0), max(after, 0)) for before, after in sides]
    if value == 0 and any(map(any, whole)):
        places = tuple((before, 1) for before, _ in whole)
        return [graph.add("spread", (number,), site.shapes[0], site.dtype, places)]
    for axis, (before, after) in enumerate(whole):
        shape = graph[number].shape
        edges = [graph.constant(value, (*shape[:axis], n, *shape[axis + 1 :]), site.dtype) if n else number
                 for n in (before, after)]  # fmt: skip
        parts = (*edges[: before > 0], number, *edges[1 : 1 + (after > 0)])
        whole_shape = (*shape[:axis], shape[axis] + before + after, *shape[axis + 1 :])
        number = graph.add("join", parts, whole_shape, site.dtype, axis) if len(parts) > 1 else number
    return [number]


def _average(site: Site) -> list[int] | None:
    """Read average pooling whose windows all have one divisor."""
    graph, x = site.graph, site.node("self")
    kernel_given = site.args.get("kernel_size")
    rank = int(site.packet.removeprefix("avg_pool")[0])
    kernel = site.numbers("kernel_size", rank) if isinstance(kernel_given, tuple) else ()
    strides, pads = site.numbers("stride", rank) or kernel, site.numbers("padding", rank)
    divided = site.args.get("count_include_pad") or not any(pads)
    if (
        len(graph[x].shape) != rank + 2
        or not divided
        or site.args.get("divisor_override")
        or site.args.get("ceil_mode")
    ):
        return None
    outs = site.shapes[0][2:]
    sizes = [n + 2 * p for n, p in zip(graph[x].shape[2:], pads, strict=True)]
    seen = windows(graph, x, [(p, 1) for p in pads], sizes, outs, strides, kernel, (1,) * rank)
    steps, taps = [f"o{axis}" for axis in range(rank)], [f"k{axis}" for axis in range(rank)]
    labels = ["b", "c", *steps]
    return [product(graph, [(seen, [*labels, *taps])], labels, site.dtype, 1.0 / prod(kernel))]


def _adaptive(site: Site) -> list[int] | None:
    """Read average pooling to a size that divides that of the image."""
    graph, x, outs = site.graph, site.node("self"), site.shapes[0][2:]
    shape, rank = graph[x].shape, len(outs)
    if len(site.shapes[0]) != len(shape) or rank < 1 or any(n % o for n, o in zip(shape[2:], outs, strict=True)):
        return None
    kernel = [n // o for n, o in zip(shape[2:], outs, strict=True)]
    seen = windows(graph, x, [(0, 1)] * rank, shape[2:], outs, kernel, kernel, (1,) * rank)
    steps, taps = [f"o{axis}" for axis in range(rank)], [f"k{axis}" for axis in range(rank)]
    labels = ["b", "c", *steps]
    return [product(graph, [(seen, [*labels, *taps])], labels, site.dtype, 1.0 / prod(kernel))]


def _patches(site: Site) -> list[int] | None:
    """Read patches of an image as columns."""
    graph, x = site.graph, site.node("self")
    shape = graph[x].shape
    if len(shape) != 4:
        return None
    kernel, strides, pads, steps = (site.numbers(n, 2) for n in ("kernel_size", "stride", "padding", "dilation"))
    sizes = [n + 2 * p for n, p in zip(shape[2:], pads, strict=True)]
    outs = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, strides, steps, strict=True)]
    seen = windows(graph, x, [(p, 1) for p in pads], sizes, outs, strides, kernel, steps)
    groups = [((axis, 1, graph[seen].shape[axis]),) for axis in (0, 1, 4, 5, 2, 3)]
    return [reshape(graph, view(graph, seen, groups, (0,) * 6), site.shapes[0])]


WINDOW_LIFTS: dict[str, Lift] = {
    "constant_pad_nd": _padded, "im2col": _patches,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _average),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _adaptive),
}  # fmt: skip
"""Readers by operator."""
