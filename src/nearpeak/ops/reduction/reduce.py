"""Sums, means, extrema, norms and variances over dimensions."""

from functools import partial
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.call_operands import along, list_overloads, onnx_operands
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty, where
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.reference.reductions import reduction_of
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype


def reduce(
    outputs: int, reduced: int, dtype: DType, function: str = "sum", out_dtype: DType | None = None, read: int = 0
) -> Work:
    """Return the least work of y[outputs] = function of x[outputs,reduced] over its last dimension.

    Counts: n - 1 FLOP for n values of a sum, product or extremum, n for a mean (one multiplication by 1/n), 2n - 1 for
    a norm (of any order: a power of each, of which no order needs less than one FLOP), 3n + 2 for a variance in one
    pass (sum, squares and their sum, 4 to combine), 3n - 1 and n + 1 special evaluations for logsumexp; integers none.

    Args:
        function: sum, mean, prod, max, min, argmax, max_index (values and positions), any, all, norm, var, …
        read: distinct elements where x is broadcast; 0 means all.

    Source: definitions.

    >>> work = reduce(2, 8, DType(name="bf16", bits_count=16), "mean")
    >>> work.flop, work.write_bytes
    ({'vector.fp32': 16}, 4)
    """
    row = reduction_of(function)
    some = maximum(reduced, 1)
    real, full = dtype.kind == "float", outputs * reduced
    formats = [dtype_of(name) if name else out_dtype or dtype for name in row.outputs]
    return Work(
        flop={unit(dtype): unless_empty(full, outputs * row.flop(some))}
        if real and function not in ("any", "all")
        else {},
        special_count=unless_empty(full, outputs * row.special(some)) if real else 0 * outputs,
        read_bytes=dtype.bytes(unless_empty(outputs, where(read == 0, full, read))),
        write_bytes=sum(out.bytes(outputs) for out in formats),
    )


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    return dict(zip(("y", "second"), reduction_of(function).reference(arrays["x"]), strict=False))


def _torch_call(tensors: dict[str, Any], function: str, dtype: str, out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    row = reduction_of(function)
    if dtype == out_dtype or "" not in row.outputs:  # of whole numbers, PyTorch's sums have a format of their own
        return dict(zip(("y", "second"), row.torch(torch, tensors["x"]), strict=False))
    results = row.torch(torch, in_wider(torch, tensors, out_dtype)["x"])
    out = torch_dtype(torch, out_dtype)
    formed = (result if kind else result.to(out) for result, kind in zip(results, row.outputs, strict=False))
    return dict(zip(("y", "second"), formed, strict=False))


def _match(x: Tensor, out: Tensor, function: str) -> Match:
    reduced = x.elements // out.elements if out.elements else 0
    arguments: dict[str, Value] = {"outputs": out.elements, "reduced": reduced, "dtype": x.dtype, "function": function}
    return Match(
        arguments=arguments
        | {
            "out_dtype": x.dtype if reduction_of(function).outputs[0] else out.dtype,
            "read": 0 if x.distinct == x.elements else x.distinct,
        }
    )


def _from_aten(function: str, site: AtenSite) -> Match:
    """Match the reductions that are `function`."""
    return _match(site.args["self"], site.outputs[0], function)


def _norm(site: AtenSite) -> Match:
    """Match vector norms by their order."""
    return _match(site.args["self"], site.outputs[0] if site.outputs else site.args["self"], _norm_of(site))


def _norm_of(site: AtenSite) -> str:
    """Return the function that is the norm of a call's order."""
    order = next((site.args[name] for name in ("ord", "p", "norm_type") if site.args.get(name) is not None), 2)
    return {0: "norm_0", 1: "norm_1", 2: "norm", float("inf"): "max", float("-inf"): "min"}.get(order, "norm_p")


def _distance(site: AtenSite) -> tuple[Match, ...]:
    """Match dist, the norm of a difference: two kernels."""
    a, b, out = site.args["self"], site.args["other"], site.outputs[0]
    elements = int(np.prod(np.broadcast_shapes(a.shape, b.shape), dtype=np.int64))
    return (
        Match(op="elementwise", arguments={"function": "sub", "elements": elements, "a": min(a.distinct, elements),
                                           "b": min(b.distinct, elements), "dtype": a.dtype}),
        _match(Tensor(shape=(elements,), dtype=a.dtype), out, _norm_of(site)),
    )  # fmt: skip


def _renormed(site: AtenSite) -> tuple[Match, ...]:
    """Match renorm: the norms of slices, and the product with what brings the larger ones down."""
    x, slices = site.args["self"], Tensor(shape=(1,), dtype=site.args["self"].dtype)
    if "maxnorm" in site.args and x.shape:
        slices = Tensor(shape=(x.shape[site.args["dim"]],), dtype=x.dtype)
    product: dict[str, Value] = {"function": "mul", "elements": x.elements, "a": x.distinct, "b": slices.elements}
    return _match(x, slices, _norm_of(site)), Match(op="elementwise", arguments=product | {"dtype": x.dtype})


def _rows_renormed(site: AtenSite) -> Match:
    """Match embedding_renorm_: at least one row is looked at where there is an index, and none needs a change."""
    table, index = site.args["self"], site.args["indices"]
    width = table.shape[-1] if index.elements else 0
    size = dtype_of(table.dtype).bytes(width)
    match = _match(Tensor(shape=(width,), dtype=table.dtype), Tensor(shape=(1,), dtype=table.dtype), _norm_of(site))
    return Match(arguments=match.arguments, touched_bytes={"self": size, "write:self": 0})


def _trace(site: AtenSite) -> Match:
    """Match trace, the sum of a matrix' diagonal; nothing else is read."""
    x = site.args["self"]
    count = min(x.shape)
    arguments: dict[str, Value] = {"outputs": 1, "reduced": count, "dtype": x.dtype, "out_dtype": site.outputs[0].dtype}
    return Match(arguments=arguments, touched_bytes={"self": dtype_of(x.dtype).bytes(count)})


def _list_norm(site: AtenSite) -> tuple[Match, ...]:
    """Match the norms of a list of tensors, one kernel per format.

    The case has rows of the mean length, rounded down: bytes are exact, FLOP at most two per tensor too few.
    """
    function = _norm_of(site)
    by_format: dict[str, list[Tensor]] = {}
    for x in site.args["self"]:
        by_format.setdefault(x.dtype, []).append(x)
    return tuple(
        Match(
            arguments={
                "outputs": len(tensors), "reduced": sum(x.elements for x in tensors) // len(tensors), "dtype": dtype,
                "function": function, "read": sum(x.distinct for x in tensors),
            }
        )
        for dtype, tensors in by_format.items()
    )  # fmt: skip


def _from_onnx(function: str, site: OnnxSite) -> Match:
    """Match the nodes that are `function`."""
    return _match(site.tensor(0), site.outputs[0], function)


def _of_several(function: str, site: OnnxSite) -> Match:
    """Match the nodes that are `function` of any number of inputs, element by element."""
    out, inputs = site.outputs[0], [tensor for tensor in site.inputs if tensor is not None]
    read = sum(min(tensor.distinct, out.elements) for tensor in onnx_operands(site))
    arguments: dict[str, Value] = {"outputs": out.elements, "reduced": len(inputs), "read": read}
    return Match(arguments=arguments | {"dtype": out.dtype, "function": function})


def _whole_norm(site: OnnxSite) -> Match:
    """Match GlobalLpPool, the norm of each plane."""
    x = site.tensor(0)
    return _match(x, site.outputs[0], {1: "norm_1", 2: "norm"}.get(int(site.attributes.get("p", 2)), "norm_p"))


def _normalised(site: OnnxSite) -> tuple[Match, ...]:
    """Match LpNormalization: the norms along an axis, then the quotients of what has been read already."""
    x = site.tensor(0)
    rows, _ = along(x, site.attributes.get("axis", -1))
    norms = Tensor(shape=(rows,), dtype=x.dtype)
    quotient: dict[str, Value] = {"function": "div", "elements": x.elements, "a": 0, "b": 0, "dtype": x.dtype}
    function = "norm_1" if site.attributes.get("p", 2) == 1 else "norm"
    return _match(x, norms, function), Match(op="elementwise", arguments=quotient)


_ATEN = {
    "sum": ("sum.default", "sum.dim_IntList", "nansum.default"),
    "mean": ("mean.default", "mean.dim"),
    "prod": ("prod.default", "prod.dim_int"),
    "max": ("amax.default", "amax.out", "max.default"),
    "min": ("amin.default", "min.default"),
    "max_index": ("max.dim",),
    "min_index": ("min.dim",),
    "argmax": ("argmax.default",),
    "argmin": ("argmin.default",),
    "any": ("any.default", "any.dim", "any.dims", "_is_any_true.default"),
    "all": ("all.default", "all.dim", "all.dims", "_is_all_true.default"),
    "var": ("var.correction", "var.dim", "var.default"),
    "std": ("std.correction", "std.dim", "std.default"),
    "var_mean": ("var_mean.correction",),
    "std_mean": ("std_mean.correction",),
    "min_max": ("aminmax.default",),
    "logsumexp": ("logsumexp.default",),
    "count_nonzero": ("count_nonzero.default", "count_nonzero.dim_IntList"),
}
_ONNX = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
    "norm": "ReduceL2", "norm_1": "ReduceL1", "sum_square": "ReduceSumSquare", "logsumexp": "ReduceLogSumExp",
    "argmax": "ArgMax", "argmin": "ArgMin",
}  # fmt: skip
_SELECTED = (
    "max", "min", "argmax", "argmin", "max_index", "min_index", "min_max", "any", "all", "count_nonzero", "norm_0",
)  # fmt: skip

OPERATOR = Operator(
    forward=reduce,
    family="reduction",
    tolerance=Tolerance(
        kind="normalisation",
        reduction="reduced",
        steps_count=1,
        rounds=(
            *("large", "ties", "deep:max", "deep:max_index", "deep:argmax", "high:min", "high:min_index"),
            *("high:argmin", "deep:min_max", "high:min_max", "peak_first:logsumexp", "peak_last:logsumexp"),
            *(f"offset:{name}" for name in ("var", "std", "var_mean", "std_mean")),
            *("beyond:norm", "beyond:std", "sparse:any", "sparse:all", "sparse:count_nonzero", "sparse:norm_0"),
        ),
        exact=_SELECTED,
    ),
    inputs=lambda outputs, reduced, dtype, **_: {"x": Tensor(shape=(outputs, reduced), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    aten={
        **{f"aten.{name}": partial(_from_aten, function) for function, names in _ATEN.items() for name in names},
        **dict.fromkeys(("aten.linalg_vector_norm.default", "aten.norm.Scalar", "aten.norm.ScalarOpt_dim"), _norm),
        "aten.trace.default": _trace,
        "aten.dist.default": _distance,
        "aten.renorm.default": _renormed,
        "aten.renorm_.default": _renormed,
        "aten.embedding_renorm_.default": _rows_renormed,
        **dict.fromkeys(list_overloads("norm"), _list_norm),
    },
    onnx={
        **{name: partial(_from_onnx, function) for function, name in _ONNX.items()},
        "Sum": partial(_of_several, "sum"),
        "Mean": partial(_of_several, "mean"),
        "LpNormalization": _normalised,
        "GlobalLpPool": _whole_norm,
    },
)
