"""Mapping of JAX primitives to ATen operators of the same work, or directly to cases."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops import AtenSite, Match, Matcher, Value, aten_matchers

Operands = Sequence[Any]
"""Tensors and numbers, in order."""
Params = Mapping[str, Any]

_SAME_NAME = (
    "neg", "abs", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "square", "erf", "erfc", "floor", "ceil", "round", "sign",
    "lgamma", "digamma",
)  # fmt: skip
_UNARY = {name: name for name in _SAME_NAME} | {"logistic": "sigmoid", "is_finite": "isfinite", "not": "bitwise_not"}
_BINARY = {name: name for name in ("add", "sub", "mul", "div", "pow", "atan2", "eq", "ne", "lt", "le", "gt", "ge")} | {
    "add_any": "add", "max": "maximum", "min": "minimum", "rem": "fmod", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "shift_left": "bitwise_left_shift", "shift_right_logical": "bitwise_right_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
}  # fmt: skip
_REDUCED = {
    "reduce_sum": "sum.dim_IntList", "reduce_max": "amax.default", "reduce_min": "amin.default",
    "reduce_prod": "prod.dim_int", "reduce_and": "all.dims", "reduce_or": "any.dims", "argmax": "argmax.default",
    "argmin": "argmin.default",
}  # fmt: skip
_SCANNED = {name: name for name in ("cumsum", "cumprod", "cummax", "cummin")} | {"cumlogsumexp": "logcumsumexp"}


def site_of(name: str, operands: Operands, params: Params, outputs: tuple[Tensor, ...]) -> AtenSite:
    """Return the call of the primitive `name` as matchers see it."""
    args: dict[str, Any] = dict(zip(("self", "other", "third"), operands, strict=False))
    if name in _UNARY:
        return AtenSite(name=f"aten.{_UNARY[name]}.default", args=args, outputs=outputs)
    if name in _BINARY:
        return AtenSite(name=f"aten.{_BINARY[name]}.Tensor", args=args, outputs=outputs)
    if name in _REDUCED:
        return AtenSite(name=f"aten.{_REDUCED[name]}", args=args, outputs=outputs)
    if name in _SCANNED:
        return AtenSite(name=f"aten.{_SCANNED[name]}.default", args=args | {"dim": params["axis"]}, outputs=outputs)
    if name in _RENAMED:
        operator, arguments = _RENAMED[name](operands, params)
        return AtenSite(name=operator, args=arguments, outputs=outputs)
    named_operands = {f"operand{index}": operand for index, operand in enumerate(operands)}
    return AtenSite(name=f"jax.{name}", args={**named_operands, "params": params}, outputs=outputs)


_RENAMED: Mapping[str, Callable[[Operands, Params], tuple[str, dict[str, Any]]]] = {
    "integer_pow": lambda x, p: ("aten.pow.Tensor_Scalar", {"self": x[0], "exponent": p["y"]}),
    "convert_element_type": lambda x, _: ("aten._to_copy.default", {"self": x[0]}),
    "copy": lambda x, _: ("aten.clone.default", {"self": x[0]}),
    "copy_p": lambda x, _: ("aten.clone.default", {"self": x[0]}),
    "rev": lambda x, p: ("aten.flip.default", {"self": x[0], "dims": p["dimensions"]}),
    "clamp": lambda x, _: ("aten.clamp.Tensor", {"self": x[1], "min": x[0], "max": x[2]}),
    "concatenate": lambda x, p: ("aten.cat.default", {"tensors": list(x), "dim": p["dimension"]}),
    "stack": lambda x, p: ("aten.cat.default", {"tensors": list(x), "dim": p.get("axis", 0)}),
    "tile": lambda x, _: ("aten.repeat.default", {"self": x[0]}),
    "sort": lambda x, p: ("aten.sort.default", {"self": x[0], "dim": p["dimension"], "descending": False}),
    "top_k": lambda x, p: ("aten.topk.default", {"self": x[0], "k": p["k"], "dim": -1}),
    "iota": lambda _x, _p: ("aten.arange.default", {}),
    "random_bits": lambda _x, _p: ("aten.rand.default", {}),
    "cholesky": lambda x, _: ("aten.cholesky.default", {"self": x[0], "upper": False}),
}


def matchers() -> dict[str, tuple[str, Matcher]]:
    """Return operator and matcher by name: those of ATen, and of primitives without an ATen equivalent."""
    jax_matchers: dict[str, tuple[str, Matcher]] = {
        "jax.dot_general": ("gemm", _dot_general), "jax.conv_general_dilated": ("conv", _conv),
        "jax.gather": ("gather", _gather), "jax.dynamic_slice": ("copy", _part), "jax.pad": ("copy", _padded),
        "jax.dynamic_update_slice": ("copy", _updated), "jax.select_n": ("elementwise", _selected),
        "jax.scatter": ("scatter", _scatter), "jax.scatter-add": ("scatter", _scatter),
        "jax.scatter_add": ("scatter", _scatter), "jax.reduce_window_max": ("max_pool", _max_pool),
    }  # fmt: skip
    return aten_matchers() | jax_matchers


def _dot_general(site: AtenSite) -> Match:
    (left, right), (left_batch, right_batch) = site.args["params"]["dimension_numbers"]
    a, b, out = site.args["operand0"], site.args["operand1"], site.outputs[0]
    k, batch = prod(a.shape[i] for i in left), prod(a.shape[i] for i in left_batch)
    m = prod(extent for i, extent in enumerate(a.shape) if i not in (*left, *left_batch))
    n = prod(extent for i, extent in enumerate(b.shape) if i not in (*right, *right_batch))
    return Match(arguments={"m": m, "n": n, "k": k, "batch": batch, "dtype": a.dtype, "out_dtype": out.dtype})


def _conv(site: AtenSite) -> Match:
    """Match a convolution of up to three dimensions; a dilated input is a transposed one."""
    x, w, params = site.args["operand0"], site.args["operand1"], site.args["params"]
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    dims = len(x.shape) - 2
    if params["batch_group_count"] != 1 or dims > 3:
        raise NotModelledError("jax: no rule for convolutions grouped by batch, or over more than three dimensions")
    (batch, features), spatial = (x.shape[i] for i in numbers.lhs_spec[:2]), numbers.lhs_spec[2:]
    dilated = any(step != 1 for step in params["lhs_dilation"])
    arguments: dict[str, Any] = {
        "batch": batch, "in_channels": features, "out_channels": w.shape[numbers.rhs_spec[0]], "groups": groups,
        "dtype": x.dtype, "out_dtype": site.outputs[0].dtype,
    }  # fmt: skip
    for index, axis in enumerate("dhw"[3 - dims :]):
        taps = w.shape[numbers.rhs_spec[2 + index]]
        arguments |= {axis: x.shape[spatial[index]], f"k{axis}": taps, f"d{axis}": params["rhs_dilation"][index]}
        arguments |= (_cropped if dilated else _strided)(axis, taps, params, index)
    return Match(arguments=arguments, op="conv_transpose" if dilated else "conv")


def _strided(axis: str, _taps: int, params: Params, index: int) -> dict[str, int]:
    low, high = params["padding"][index]
    if min(low, high) < 0:
        raise NotModelledError("jax: no rule for convolutions with negative padding")
    return {f"s{axis}": params["window_strides"][index], f"p{axis}": low, f"p{axis}_end": high}


def _cropped(axis: str, taps: int, params: Params, index: int) -> dict[str, int]:
    """Return stride and crop of the transposed convolution: padding plus crop is the reach of the filter taps."""
    low, high = params["padding"][index]
    reach = (taps - 1) * params["rhs_dilation"][index]
    if params["window_strides"][index] != 1 or low > reach:
        raise NotModelledError("jax: no rule for a dilated input that is strided or padded beyond the window as well")
    added = max(0, high - reach)
    return {
        f"s{axis}": params["lhs_dilation"][index], f"p{axis}": reach - low, f"p{axis}_end": reach - high + added,
        f"o{axis}": added,
    }  # fmt: skip


def _max_pool(site: AtenSite) -> Match:
    """Match the maximum over windows; dimensions without a window are merged."""
    x, params = site.args["operand0"], site.args["params"]
    wide = [i for i, taps in enumerate(params["window_dimensions"]) if taps > 1]
    plain = all(params["window_strides"][i] == 1 for i in range(len(x.shape)) if i not in wide)
    dilated, negative = any(step != 1 for step in params["base_dilation"]), min(map(min, params["padding"])) < 0
    if not 1 <= len(wide) <= 3 or dilated or negative or not plain:
        raise NotModelledError("jax: no rule for windows over these dimensions")
    others = prod(extent for i, extent in enumerate(x.shape) if i not in wide)
    arguments: dict[str, Value] = {"batch": others, "channels": 1, "dtype": x.dtype}
    for axis, i in zip("dhw"[3 - len(wide) :], wide, strict=True):
        low, high = params["padding"][i]
        arguments |= {
            axis: x.shape[i], f"k{axis}": params["window_dimensions"][i], f"s{axis}": params["window_strides"][i],
            f"p{axis}": low, f"p{axis}_end": high, f"d{axis}": params["window_dilation"][i],
        }  # fmt: skip
    return Match(arguments=arguments)


def _gather(site: AtenSite) -> Match:
    table, index, out = site.args["operand0"], site.args["operand1"], site.outputs[0]
    width = prod(site.args["params"]["slice_sizes"])
    arguments: dict[str, Value] = {
        "rows": out.elements // max(1, width), "width": width, "table_rows": table.elements // max(1, width),
        "indices": index.elements, "dtype": table.dtype, "index_dtype": index.dtype,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes={"operand0": dtype_of(table.dtype).bytes(width)})


def _scatter(site: AtenSite) -> Match:
    """Match a scatter; without knowing the indices one row of the table is touched."""
    table, index, source = (site.args[f"operand{i}"] for i in range(3))
    window = site.args["params"]["dimension_numbers"].update_window_dims
    width = prod(source.shape[axis] for axis in window)
    arguments: dict[str, Value] = {
        "rows": source.elements // max(1, width), "width": width, "table_rows": table.elements // max(1, width),
        "indices": index.elements, "dtype": table.dtype, "index_dtype": index.dtype, "accumulate": "add" in site.name,
    }  # fmt: skip
    return Match(arguments=arguments)


def _part(site: AtenSite) -> Match:
    out = site.outputs[0]
    arguments: dict[str, Value] = {"elements": out.elements, "dtype": out.dtype}
    return Match(arguments=arguments, touched_bytes={"operand0": out.bytes})


def _updated(site: AtenSite) -> Match:
    """Match the update of a slice, in place: the rest of the array stays where it is."""
    update = site.args["operand1"]
    arguments: dict[str, Value] = {"elements": update.elements, "dtype": update.dtype, "read": update.distinct}
    return Match(arguments=arguments, touched_bytes={"operand0": 0, "write": update.bytes})


def _padded(site: AtenSite) -> Match:
    x, out = site.args["operand0"], site.outputs[0]
    return Match(arguments={"elements": out.elements, "dtype": out.dtype, "read": min(x.distinct, out.elements)})


def _selected(site: AtenSite) -> Match:
    """Match a choice between two arrays."""
    if "operand3" in site.args:
        raise NotModelledError("jax: no rule for a choice among more than two arrays")
    chosen = {"condition": site.args["operand0"], "self": site.args["operand2"], "other": site.args["operand1"]}
    where = AtenSite(name="aten.where.self", args=chosen, outputs=site.outputs)
    match = aten_matchers()["aten.where.self"][1](where)
    assert isinstance(match, Match)
    return match
