"""Algebraic form of PyTorch's linear operators, constants and copies, by operator name."""

from collections.abc import Sequence
from math import prod

from nearpeak.bounds.simplify.affine_views import repeated, reshape, selected, view
from nearpeak.bounds.simplify.graph_builder import Lift, Ref, Site
from nearpeak.bounds.simplify.image_windows import WINDOW_LIFTS, windows
from nearpeak.bounds.simplify.product_sums import added, product, scaled
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall, Slot
from nearpeak.core.work.dtype import dtype_of


def _sum_of(site: Site, terms: Sequence[tuple[int, float]], shape: tuple[int, ...]) -> list[int]:
    """Return the sum of nodes times numbers, broadcast."""
    graph = site.graph
    parts = [repeated(graph, scaled(graph, node, factor), shape) for node, factor in terms if factor != 0]
    return [added(graph, parts, site.dtype) if parts else graph.constant(0.0, shape, site.dtype)]


def _matrix(site: Site, a: str, b: str, left: str, right: str, out: str) -> int:
    return product(site.graph, ((site.node(a), left), (site.node(b), right)), out, site.dtype)


def _biased(a: str, b: str, left: str, right: str, out: str) -> Lift:
    """Return the reader of beta * self + alpha * a b."""

    def read(site: Site) -> list[int] | None:
        if not _real(site):
            return None
        result = _matrix(site, a, b, left, right, out)
        terms = [(result, site.number("alpha", 1.0)), (site.node("self"), site.number("beta", 1.0))]
        return _sum_of(site, terms, site.shapes[0])

    return read


def _plain(a: str, b: str, left: str, right: str, out: str) -> Lift:
    return lambda site: [_matrix(site, a, b, left, right, out)] if _real(site) else None


def _real(site: Site) -> bool:
    """Say whether the result has a number format in which sums may be reordered."""
    return is_float(site.dtype)


def _keep_values(site: Site, numbers: Sequence[int]) -> bool:
    """Say whether operands have the format of the result, or one from which the conversion changes no real number."""
    formats = {site.graph[number].dtype for number in numbers} - {site.dtype}
    return not formats or all(map(is_float, formats | {site.dtype}))


def is_float(name: str) -> bool:
    """Say whether a format is a floating one of at least 16 bits, in which sums may be reordered."""
    dtype = dtype_of(name)
    return dtype.kind == "float" and dtype.bits_count >= 16


def _operand(site: Site, name: str) -> int:
    """Return a tensor, or a number as a constant, broadcast to the result."""
    shape = site.shapes[0]
    if site.is_tensor(name):
        return repeated(site.graph, site.node(name), shape)
    return site.graph.constant(site.number(name, 0.0), shape, site.dtype)


def _add(site: Site) -> list[int] | None:
    if not _real(site):
        return None
    sign = -1.0 if site.packet in ("sub", "subtract") else 1.0
    factor = sign * site.number("alpha", 1.0)
    first, second = _operand(site, "self"), _operand(site, "other")
    if site.packet == "rsub":
        return _sum_of(site, [(second, 1.0), (first, -site.number("alpha", 1.0))], site.shapes[0])
    return _sum_of(site, [(first, 1.0), (second, factor)], site.shapes[0])


def _mul(site: Site) -> list[int] | None:
    if not _real(site):
        return None
    return [_elements(site.graph, (_operand(site, "self"), _operand(site, "other")), site)]


def _elements(graph: Graph, operands: Sequence[int], site: Site) -> int:
    """Return the product of tensors element by element."""
    labels = [str(axis) for axis in range(len(site.shapes[0]))]
    return product(graph, [(number, labels) for number in operands], labels, site.dtype)


def _div(site: Site) -> list[int] | None:
    if not _real(site) or site.args.get("rounding_mode") is not None:
        return None
    graph, shape = site.graph, site.shapes[0]
    if not site.is_tensor("other"):
        divisor = site.number("other", 0.0)
        return None if divisor == 0 else [scaled(graph, _operand(site, "self"), 1.0 / divisor)]
    other = site.node("other")
    inverse = graph.add(
        "pointwise",
        (other,),
        graph[other].shape,
        site.dtype,
        OperatorCall("aten.reciprocal.default", (("self", Slot(0)),)),
    )
    return [_elements(graph, (_operand(site, "self"), repeated(graph, inverse, shape)), site)]


def _neg(site: Site) -> list[int] | None:
    return [scaled(site.graph, site.node("self"), -1.0)] if _real(site) else None


def _reduced(site: Site) -> list[int] | None:
    """Read sum and mean."""
    graph, number = site.graph, site.node("self")
    shape = graph[number].shape
    if not _real(site) or dtype_of(graph[number].dtype).kind != "float":
        return None
    dim = site.args.get("dim")
    named = (dim,) if isinstance(dim, int) else dim
    axes = {int(str(a)) % len(shape) for a in named} if isinstance(named, tuple) and named else set(range(len(shape)))
    labels = [str(axis) for axis in range(len(shape))]
    count = prod(shape[axis] for axis in axes)
    factor = 1.0 / count if site.packet == "mean" else 1.0
    result = product(
        graph, [(number, labels)], [labels[a] for a in range(len(shape)) if a not in axes], site.dtype, factor
    )
    return [reshape(graph, result, site.shapes[0])]


def _copied(site: Site) -> list[int] | None:
    """Read copies and conversions between floating formats, which change no value in real arithmetic."""
    graph = site.graph
    name = "src" if site.packet == "copy" else "self"
    if not site.is_tensor(name):
        return None
    number = site.node(name)
    if not _keep_values(site, (number,)):
        return None
    return [repeated(graph, number, site.shapes[0])]


def _constant(value: float | str) -> Lift:
    """Return the reader of tensors filled with one number, fixed or named by an argument."""

    def read(site: Site) -> list[int] | None:
        if dtype_of(site.dtype).kind == "complex":
            return None
        number = site.args.get(value) if isinstance(value, str) else value
        if not isinstance(number, (int, float)):
            return None
        return [site.graph.constant(float(number), site.shapes[0], site.dtype)]

    return read


def _filled(site: Site) -> list[int] | None:
    """Read filling with a number, also with one that a tensor holds."""
    if not site.is_tensor("value"):
        return _constant("value")(site)
    number = site.node("value")
    return [repeated(site.graph, number, site.shapes[0])] if _keep_values(site, (number,)) else None


def _put(site: Site) -> list[int] | None:
    """Read writing one number where a condition on leading dimensions holds."""
    graph, places, number = site.graph, site.args.get("indices"), site.node("self")
    if site.args.get("accumulate") or not (isinstance(places, tuple) and len(places) == 1 and site.is_tensor("values")):
        return None
    (place,), value, shape = places, graph[site.node("values")], site.shapes[0]
    if not isinstance(place, Ref) or graph[place.node].dtype != "bool" or value.kind != "constant":
        return None
    wide = (*graph[place.node].shape, *(1 for _ in shape[len(graph[place.node].shape) :]))
    mask = repeated(graph, reshape(graph, place.node, wide), shape)
    stated = OperatorCall(
        "aten.masked_fill.Scalar", (("self", Slot(0)), ("mask", Slot(1)), ("value", float(value.options)))
    )
    return [graph.add("pointwise", (number, mask), shape, site.dtype, stated)]


def _concatenated(site: Site) -> list[int] | None:
    graph, tensors = site.graph, site.args.get("tensors")
    shape = site.shapes[0]
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Ref) for tensor in tensors):
        return None
    numbers = [tensor.node for tensor in tensors if len(graph[tensor.node].shape) == len(shape)]
    numbers = [number for number in numbers if 0 not in graph[number].shape]
    axis = int(site.number("dim", 0)) % len(shape)
    if not _keep_values(site, numbers):
        return None
    return [graph.add("join", tuple(numbers), shape, site.dtype, axis)]


def _stacked(site: Site) -> list[int] | None:
    """Read stack: tensors joined along a dimension of their own."""
    graph, tensors, shape = site.graph, site.args.get("tensors"), site.shapes[0]
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Ref) for tensor in tensors):
        return None
    axis = int(site.number("dim", 0)) % len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    if not _keep_values(site, [tensor.node for tensor in tensors]):
        return None
    parts = [reshape(graph, tensor.node, single) for tensor in tensors]
    return [graph.add("join", tuple(parts), shape, site.dtype, axis)]


def _blocks(site: Site) -> list[int] | None:
    """Read block_diag: each matrix between zeros, one below the other."""
    graph, tensors = site.graph, site.args.get("tensors")
    if not isinstance(tensors, tuple) or not all(isinstance(tensor, Ref) for tensor in tensors):
        return None
    numbers = [tensor.node for tensor in tensors]
    shapes = [graph[number].shape for number in numbers]
    if any(len(shape) != 2 or 0 in shape for shape in shapes) or not _keep_values(site, numbers):
        return None
    rows, before, width = [], 0, site.shapes[0][1]
    for number, shape in zip(numbers, shapes, strict=True):
        sides = [(before, -1), (shape[1], number), (width - before - shape[1], -1)]
        parts = [graph.constant(0.0, (shape[0], n), site.dtype) if block < 0 else block for n, block in sides if n]
        row = graph.add("join", tuple(parts), (shape[0], width), site.dtype, 1) if len(parts) > 1 else parts[0]
        rows.append(row)
        before += shape[1]
    return [graph.add("join", tuple(rows), site.shapes[0], site.dtype, 0) if len(rows) > 1 else rows[0]]


def _flipped(site: Site) -> list[int] | None:
    rank = len(site.shapes[0])
    return [_reversed(site.graph, site.node("self"), sorted({axis % rank for axis in site.numbers("dims", 1)}))]


def _rolled(site: Site) -> list[int] | None:
    """Read roll along named dimensions: the last elements before the others."""
    graph, number, shape = site.graph, site.node("self"), site.shapes[0]
    axes = [axis % len(shape) for axis in site.numbers("dims", 1)]
    for axis, count in zip(axes, site.numbers("shifts", len(axes)), strict=True):
        before = count % shape[axis]
        if before:
            sides = [(shape[axis] - before, before), (0, shape[axis] - before)]
            parts = tuple(selected(graph, number, axis, start, extent) for start, extent in sides)
            number = graph.add("join", parts, shape, site.dtype, axis)
    return [number] if axes else None


def _tiled(site: Site) -> list[int] | None:
    """Read repeat: the tensor runs again and again along each dimension."""
    graph, number, times = site.graph, site.node("self"), site.numbers("repeats", 1)
    source_shape = graph[number].shape
    missing = len(times) - len(source_shape)
    groups = [
        (
            *([(-1, 0, count)] if count > 1 else []),
            *([(axis - missing, 1, source_shape[axis - missing])] if axis >= missing else []),
        )
        for axis, count in enumerate(times)
    ]
    return [view(graph, number, groups, (0,) * len(source_shape))]


def _convolution(site: Site) -> list[int] | None:
    """Read a convolution as the sum over taps and channels of windows times weights."""
    graph, x, weight = site.graph, site.node("input"), site.node("weight")
    rank = len(graph[x].shape) - 2
    if not _real(site) or rank < 1 or rank != len(site.shapes[0]) - 2:
        return None
    transposed = bool(site.args.get("transposed"))
    strides, pads, dilations = (site.numbers(name, rank) for name in ("stride", "padding", "dilation"))
    kernel, outs, groups = graph[weight].shape[2:], site.shapes[0][2:], int(site.number("groups", 1))
    if transposed:
        begins = [d * (k - 1) - p for d, k, p in zip(dilations, kernel, pads, strict=True)]
        places, strides = list(zip(begins, strides, strict=True)), (1,) * rank
    else:
        places = [(p, 1) for p in pads]
    if any(begin < 0 for begin, _ in places):
        return None
    sizes = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(outs, strides, dilations, kernel, strict=True)]
    if any(s < b + step * (n - 1) + 1 for s, (b, step), n in zip(sizes, places, graph[x].shape[2:], strict=True)):
        sizes = [
            max(s, b + step * (n - 1) + 1) for s, (b, step), n in zip(sizes, places, graph[x].shape[2:], strict=True)
        ]
    seen = windows(graph, x, places, sizes, outs, strides, kernel, dilations)
    result = _grouped(site, seen, weight, groups, rank, transposed)
    terms = [(result, 1.0)]
    if site.is_tensor("bias"):
        column = (site.shapes[0][1], *(1 for _ in outs))
        terms.append((repeated(graph, reshape(graph, site.node("bias"), column), site.shapes[0]), 1.0))
    return _sum_of(site, terms, site.shapes[0])


def _grouped(site: Site, windows: int, weight: int, groups: int, rank: int, transposed: bool) -> int:
    """Return the products of windows and weights, group by group."""
    graph = site.graph
    shape, weight_shape = graph[windows].shape, graph[weight].shape
    steps, taps = [f"o{axis}" for axis in range(rank)], [f"k{axis}" for axis in range(rank)]
    windows = reshape(graph, windows, (shape[0], groups, shape[1] // groups, *shape[2:]))
    weight = reshape(graph, weight, (groups, weight_shape[0] // groups, *weight_shape[1:]))
    if transposed:  # the last tap of a window is the first of the kernel
        weight = _reversed(graph, weight, range(3, 3 + rank))
    labels = ["g", "c", "n", *taps] if transposed else ["g", "n", "c", *taps]
    operands = ((windows, ["b", "g", "c", *steps, *taps]), (weight, labels))
    result = product(graph, operands, ["b", "g", "n", *steps], site.dtype)
    return reshape(graph, result, site.shapes[0])


def _reversed(graph: Graph, number: int, axes: Sequence[int]) -> int:
    """Return the node reversed along some dimensions."""
    node = graph[number]
    turned = tuple(axis for axis in axes if node.shape[axis] > 1)
    if not turned:
        return number
    return graph.add("turned", (number,), node.shape, node.dtype, turned)


def _normalised(site: Site) -> list[int] | None:
    """Read a batch normalisation in evaluation: a factor and a summand for each channel."""
    graph = site.graph
    train = site.args.get("training", site.packet == "native_batch_norm")
    if train or not (site.is_tensor("running_mean") and site.is_tensor("running_var")) or not _real(site):
        return None
    channels = site.shapes[0][1]
    shifted = added(
        graph, [site.node("running_var"), graph.constant(site.number("eps", 0.0), (channels,), site.dtype)], site.dtype
    )
    factor = graph.add(
        "pointwise", (shifted,), (channels,), site.dtype, OperatorCall("aten.rsqrt.default", (("self", Slot(0)),))
    )
    if site.is_tensor("weight"):
        factor = product(graph, ((factor, "c"), (site.node("weight"), "c")), "c", site.dtype)
    offset = product(graph, ((factor, "c"), (site.node("running_mean"), "c")), "c", site.dtype, -1.0)
    if site.is_tensor("bias"):
        offset = added(graph, [offset, site.node("bias")], site.dtype)
    rest = [str(axis) for axis in range(len(site.shapes[0]) - 2)]
    result = product(graph, ((site.node("input"), ["b", "c", *rest]), (factor, "c")), ["b", "c", *rest], site.dtype)
    column = repeated(graph, reshape(graph, offset, (channels, *(1 for _ in rest))), site.shapes[0])
    saved = [graph.constant(0.0, shape, site.dtype) for shape in site.shapes[1:]]
    return [added(graph, [result, column], site.dtype), *saved]


def _kept(site: Site) -> list[int] | None:
    """Read a dropout that drops nothing, or everything."""
    name = "input" if site.is_tensor("input") else "self"
    if site.args.get("train") is not False and site.args.get("p") == 1:
        return [
            site.graph.constant(0.0, shape, dtype)
            for shape, dtype in zip(site.shapes, (site.dtype, "bool"), strict=False)
        ]
    if site.args.get("train") is False or site.args.get("p") == 0:
        return [site.node(name), *(site.graph.constant(1.0, shape, "bool") for shape in site.shapes[1:])]
    return None


def _between(site: Site) -> list[int] | None:
    """Read an interpolation whose weight takes one of both ends alone."""
    ends = {0.0: "self", 1.0: "end"}
    name = None if site.is_tensor("weight") else ends.get(site.number("weight", -1.0))
    return [_operand(site, name)] if name and _real(site) else None


LIFTS: dict[str, Lift] = {
    **WINDOW_LIFTS,
    "mm": _plain("self", "mat2", "mk", "kn", "mn"),
    "bmm": _plain("self", "mat2", "bmk", "bkn", "bmn"),
    "mv": _plain("self", "vec", "mk", "k", "m"),
    "dot": _plain("self", "tensor", "k", "k", ""),
    "addmm": _biased("mat1", "mat2", "mk", "kn", "mn"),
    "baddbmm": _biased("batch1", "batch2", "bmk", "bkn", "bmn"),
    "addmv": _biased("mat", "vec", "mk", "k", "m"),
    **dict.fromkeys(("add", "sub", "subtract", "rsub"), _add),
    **dict.fromkeys(("mul", "multiply"), _mul),
    **dict.fromkeys(("div", "divide", "true_divide"), _div),
    **dict.fromkeys(("neg", "negative"), _neg),
    **dict.fromkeys(("sum", "mean"), _reduced),
    **dict.fromkeys(("clone", "contiguous", "_to_copy", "copy", "detach_copy", "view_copy"), _copied),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), _constant(0.0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _constant(1.0)),
    **dict.fromkeys(("full", "full_like", "new_full"), _constant("fill_value")),
    "lerp": _between,
    "fill": _filled,
    "scalar_tensor": _constant("s"),
    "cat": _concatenated,
    "stack": _stacked,
    "index_put": _put,
    "block_diag": _blocks,
    "flip": _flipped,
    "roll": _rolled,
    "repeat": _tiled,
    "convolution": _convolution,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"), _normalised),
    **dict.fromkeys(("native_dropout", "dropout"), _kept),
}
"""Readers by operator."""
