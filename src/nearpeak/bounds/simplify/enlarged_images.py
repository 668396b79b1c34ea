"""Images enlarged by repeating the nearest element, and convolutions over them, whose taps meet repeats."""

from math import prod

from nearpeak.bounds.simplify.affine_views import View, repeated, reshape, view
from nearpeak.bounds.simplify.graph_builder import Lift, Site
from nearpeak.bounds.simplify.linear_algebra import LIFTS
from nearpeak.bounds.simplify.product_sums import added, product
from nearpeak.bounds.simplify.value_graph import OperatorCall, Slot


def _enlarged(site: Site) -> list[int] | None:
    """Read an enlargement by whole factors that repeats the nearest element; a stated scale decides what is nearest."""
    graph, number, shape = site.graph, site.node("self"), site.shapes[0]
    sizes = graph[number].shape
    names = ("scales",) if len(sizes) == 3 else ("scales_d", "scales_h", "scales_w")[5 - len(sizes) :]
    whole = all(n and not wide % n for n, wide in zip(sizes, shape, strict=True))
    if not whole or any(
        site.number(name, wide / n) != wide / n for name, n, wide in zip(names, sizes[2:], shape[2:], strict=True)
    ):
        return None
    groups = [((axis, 1, n), (-1, 0, wide // n)) for axis, (n, wide) in enumerate(zip(sizes, shape, strict=True))]
    return [view(graph, number, groups, (0,) * len(sizes))]


def _convolution(site: Site) -> list[int] | None:
    """Read a convolution; over an enlarged image, taps that meet one element are added up before they multiply.

    Of a kernel of k taps at p elements before an image enlarged s times, phase a meets the elements from
    floor((a - p) / s) to floor((a + k - 1 - p) / s); the phase that meets fewest stands for all.
    """
    graph, x, weight = site.graph, site.node("input"), site.node("weight")
    options, rank = graph[x].options, len(graph[x].shape) - 2
    factors = _factors(options) if graph[x].kind == "view" and rank > 0 else ()
    pads, kernel = site.numbers("padding", rank), graph[weight].shape[2:]
    plain = {*site.numbers("stride", rank), *site.numbers("dilation", rank), int(site.number("groups", 1))} == {1}
    if (
        len(factors) != rank
        or 1 in kernel
        or not plain
        or site.args.get("transposed")
        or site.shapes[0][2:] != graph[x].shape[2:]
    ):
        return LIFTS["convolution"](site)
    whole = [group[:-1] if group and group[-1][0] < 0 else group for group in options.groups]
    image = view(graph, graph[x].inputs[0], whole, options.starts)
    small = graph[image].shape
    taps = [min((a + k - 1 - p) // s - (a - p) // s + 1 for a in range(s))
            for s, k, p in zip(factors, kernel, pads, strict=True)]  # fmt: skip
    channels, axes = graph[weight].shape[:2], range(rank)
    sizes = [n + t - 1 for n, t in zip(small[2:], taps, strict=True)]
    places = tuple((min(-(-p // s), t - 1), 1) for s, p, t in zip(factors, pads, taps, strict=True))
    source = graph.add("spread", (image,), (*small[:2], *sizes), site.dtype, ((0, 1), (0, 1), *places))
    groups = [((axis, 1, n),) for axis, n in enumerate((*small, *taps))]
    groups = [*groups[: 2 + rank], *(((2 + axis, 1, taps[axis]),) for axis in axes)]
    windows = view(graph, source, groups, (0,) * (2 + rank))
    call = OperatorCall("nearpeak.tap_sums.default", (("weight", Slot(0)), ("factors", factors), ("padding", pads)))
    summed = graph.add("call", (weight,), (*channels, *factors, *taps), site.dtype, call)
    graph.separated[graph.call] = prod(site.shapes[0]) * prod(graph[weight].shape[1:])
    steps, phases, met = ([f"{side}{axis}" for axis in axes] for side in "oat")
    out = ["b", "n", *(label for pair in zip(steps, phases, strict=True) for label in pair)]
    result = product(graph, ((windows, ["b", "c", *steps, *met]), (summed, ["n", "c", *phases, *met])), out, site.dtype)
    result = reshape(graph, result, site.shapes[0])
    if site.is_tensor("bias"):
        column = reshape(graph, site.node("bias"), (channels[0], *(1 for _ in axes)))
        result = added(graph, [result, repeated(graph, column, site.shapes[0])], site.dtype)
    return [result]


def _factors(options: View) -> tuple[int, ...]:
    """Return how many times an image repeats each element along its axes; none where it is no enlarged image."""
    last = [group[-1] if group else (0, 1, 1) for group in options.groups]
    times = tuple(extent if place < 0 else 1 for place, _, extent in last)
    return times[2:] if times[:2] == (1, 1) and any(extent > 1 for extent in times) else ()


ENLARGED_LIFTS: dict[str, Lift] = {
    **{f"{name}{rank}d": _enlarged for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)},
    "convolution": _convolution,
}
"""Readers by operator."""
