"""Matching of element-wise calls to cases: ATen overloads, list calls, gradients, ONNX nodes."""

from dataclasses import replace
from functools import partial
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.call_operands import list_overloads, onnx_operands, overloads, tensors_of, together
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Matcher, OnnxSite, Value
from nearpeak.ops.shared.reference.elementwise_functions import FUNCTIONS, LISTED, function_of


def _variant(name: str, args: Any) -> str:
    """Return the function that the options of a call choose."""
    if name == "pow":
        exponent = args.get("exponent")
        return {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "pow")
    if name == "clamp" and args.get("min") is None:
        return "minimum"
    if name == "clamp" and args.get("max") is None:
        return "maximum"
    if name == "gelu" and args.get("approximate") == "tanh":
        return "gelu_tanh"
    rounding = args.get("rounding_mode")
    return {"floor": "floor_divide", "trunc": "trunc_divide"}.get(rounding, name) if name == "div" else name


def _match(name: str, tensors: list[Tensor], out: Tensor) -> Match:
    """Return the case of `name` on `tensors` with the result `out`; an operand that comes twice is read once."""
    row = function_of(name)
    kind = dtype_of(out.dtype).kind
    arguments: dict[str, Value] = {"function": name, "elements": out.elements, "out_dtype": out.dtype}
    arguments["dtype"] = out.dtype if kind != "bool" or not tensors else tensors[0].dtype
    for operand, tensor, index in zip(row.operand_names, tensors, range(3), strict=False):
        again = tensor.buffer >= 0 and tensor in tensors[:index]
        arguments |= {operand: 0 if again else min(tensor.distinct, out.elements), f"{operand}_dtype": tensor.dtype}
    return Match(arguments=arguments)


def _from_aten(name: str, site: AtenSite) -> Match:
    """Match the element-wise operator `name`."""
    tensors = list(tensors_of(site).values())
    if name == "rrelu":
        return _match(name, tensors[:1], tensors[0])  # the noise is drawn, not read
    return _match(_variant(name, site.args), tensors, site.outputs[0] if site.outputs else tensors[0])


def _gated(site: AtenSite) -> Match:
    """Match glu, whose operands are the halves of one tensor."""
    x, out = site.args["self"], site.outputs[0]
    half = Tensor(shape=(x.distinct // 2,), dtype=x.dtype)
    return _match("glu", [half, half], out)


def _gradient(name: str, site: AtenSite) -> Match:
    """Match the gradient of the element-wise operator `name`."""
    grad, *saved = tensors_of(site).values()
    arguments: dict[str, Value] = {
        "function": _variant(name, site.args), "elements": grad.elements, "dtype": grad.dtype, "grad": grad.distinct,
    }  # fmt: skip
    operands = saved[:1] * 2 if name == "glu" else saved[: len(function_of(name).gradients)]
    share = 2 if name == "glu" else 1
    for operand, tensor in zip("ab", operands, strict=False):
        arguments |= {operand: tensor.distinct // share, f"{operand}_dtype": tensor.dtype}
    return Match(arguments=arguments, phase="backward", touched_bytes={"buffer": 0, "noise": 0})


def _from_onnx(name: str, site: OnnxSite) -> Match:
    """Match the element-wise node of the function `name`."""
    operands = list(onnx_operands(site)) or [tensor for tensor in site.inputs[:1] if tensor is not None]
    if name == "gelu":
        name = _variant(name, {"approximate": site.attributes.get("approximate")})
    if name == "pow" and site.constants.get(1, ()) and len(set(site.constants[1])) == 1:
        name = _variant(name, {"exponent": site.constants[1][0]})
    if name == "clamp":
        operands = operands[:1]
    if len(operands) > len(function_of(name).operand_names) and name in ("minimum", "maximum"):
        read = sum(min(tensor.distinct, site.outputs[0].elements) for tensor in operands)
        several: dict[str, Value] = {"outputs": site.outputs[0].elements, "reduced": len(operands), "read": read}
        return Match(op="reduce", arguments=several | {"dtype": site.outputs[0].dtype, "function": name[:3]})
    match = _match(name, operands[: len(function_of(name).operand_names)], site.outputs[0])
    by_value = [i for i, tensor in enumerate(site.inputs) if tensor is not None and tensor not in operands]
    return Match(arguments=match.arguments, touched_bytes={str(position): 0 for position in by_value})


def _quantised(name: str, site: OnnxSite) -> Match:
    """Match QLinearAdd and QLinearMul, whose operands alternate with their scales and zero points."""
    bare = replace(site, inputs=(site.inputs[0], site.inputs[3]), constants={})
    return Match(arguments=_from_onnx(name, bare).arguments)


def _looked_up(site: OnnxSite) -> Match:
    """Match functions of 8-bit numbers, which a table of 256 results answers."""
    elements = site.outputs[0].elements
    return Match(op="copy", arguments={"elements": elements, "read": elements, "dtype": site.outputs[0].dtype})


def _shifted(site: OnnxSite) -> Match:
    """Match BitShift by its direction."""
    return _from_onnx(f"{str(site.attributes['direction']).lower()}_shift", site)


def aten_claims() -> dict[str, Matcher]:
    """Return the ATen overloads of all functions and of their gradients."""
    # Gradients are multiplied by 1 / scale; whether all are finite shows in their exponents, which is no arithmetic.
    scaler = partial(_from_aten, "mul")
    claims: dict[str, Matcher] = {
        "aten._amp_foreach_non_finite_check_and_unscale_.default": together(scaler),
        "aten._amp_update_scale_.default": scaler,
    }
    for row in FUNCTIONS.values():
        matcher = _gated if row.name == "glu" else partial(_from_aten, row.name)
        claims |= dict.fromkeys(overloads(row.name, *row.aten), matcher)
        claims |= dict.fromkeys(list_overloads(*LISTED.intersection({row.name, *row.aten})), together(matcher))
        gradients = [f"aten.{name}.{end}" for name in row.backward for end in ("default", "grad_input")]
        claims |= dict.fromkeys(gradients, partial(_gradient, row.name))
    sums = {
        f"quantized.{name}{end}.default": partial(_from_aten, name) for name in ("add", "mul") for end in ("", "_relu")
    }
    return claims | sums


def onnx_claims() -> dict[str, Matcher]:
    """Return the ONNX operator types of all functions."""
    claims: dict[str, Matcher] = {
        name: partial(_from_onnx, row.name) for row in FUNCTIONS.values() for name in row.onnx
    }
    quantised = {f"com.microsoft.QLinear{name}": partial(_quantised, name.lower()) for name in ("Add", "Mul")}
    tables = dict.fromkeys(("com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSigmoid"), _looked_up)
    return claims | {"BitShift": _shifted} | quantised | tables
