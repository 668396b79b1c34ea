"""Shape inference for ONNX Runtime's contrib operators, which the standard does not cover."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""

Shape = tuple[int, ...]
Number = Callable[[str], int]
"""Returns an integer attribute of a node by name, the length of a list attribute, 0 if absent."""
_Rule = Callable[[list[Shape | None], Number], Sequence[Shape | None]]
"""Takes the shapes of the inputs, none where absent or open, and the attributes; returns those of the outputs."""


@cache
def describe_contrib(onnx: Any) -> None:
    """Register the operators with shape inference, once; old onnx packages without registration leave shapes open."""
    defs = onnx.defs
    if not hasattr(defs.OpSchema, "set_type_and_shape_inference_function"):
        return
    for (domain, name), rule in _RULES.items():
        if not defs.has(name, domain):
            defs.register_schema(_schema(onnx, domain, name, rule))


def _schema(onnx: Any, domain: str, name: str, rule: _Rule) -> Any:
    kind = onnx.defs.OpSchema
    several = {"param_option": kind.FormalParameterOption.Variadic, "is_homogeneous": False, "min_arity": 0}
    schema = kind(
        name, domain, 1, type_constraints=[("T", _TYPES, "")], attributes=[],
        inputs=[kind.FormalParameter("inputs", "T", **several)],
        outputs=[kind.FormalParameter("outputs", "T", **several)],
    )  # fmt: skip
    schema.set_type_and_shape_inference_function(lambda context: _infer(onnx, name, rule, context))
    return schema


def _infer(onnx: Any, name: str, rule: _Rule, context: Any) -> None:
    inputs = [_shape(context, position) for position in range(context.get_num_inputs())]
    if not inputs or inputs[0] is None:
        return
    typed = _typed_by(name, context.get_num_inputs())
    stated = context.get_input_type(typed) if context.has_input(typed) else None
    element = (stated or context.get_input_type(0)).tensor_type.elem_type
    for position, shape in enumerate(rule(inputs, partial(_number, context))[: context.get_num_outputs()]):
        if shape is not None:
            context.set_output_type(position, onnx.helper.make_tensor_type_proto(element, shape))


def _typed_by(name: str, input_count: int) -> int:
    """Return the input whose format the results have: integers become real numbers where a scale is the last word."""
    if name == "QGemm" and input_count <= _RESULT_SCALE:
        return 1
    return _ELEMENT_INPUTS.get(name, 0)


_ELEMENT_INPUTS = {"MatMulIntegerToFloat": 2, "QuantizeLinear": 2, "DequantizeLinear": 1, "QLinearConcat": 2}
"""Input that has the format of the result, where it is not the first."""
_RESULT_SCALE = 7
"""Position of the scale of QGemm's result, without which it is real."""


def _number(context: Any, name: str) -> int:
    attribute = context.get_attribute(name)
    return 0 if attribute is None else int(attribute.i) or len(attribute.ints)


def _shape(context: Any, position: int) -> Shape | None:
    stated = context.get_input_type(position) if context.has_input(position) else None
    if stated is None or not stated.tensor_type.HasField("shape"):
        return None
    dims = stated.tensor_type.shape.dim
    return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None


def _same(inputs: list[Shape | None], _: Number) -> Sequence[Shape | None]:
    return (inputs[0],)


def _skip_norm(inputs: list[Shape | None], _: Number) -> Sequence[Shape | None]:
    """Result, mean, inverse deviation, and the sum that is normalised."""
    return (inputs[0], None, None, inputs[0])


def _weight_only(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    assert inputs[0] is not None
    return ((*inputs[0][:-1], number("N")),)


def _product(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    a, b = inputs[:2]
    if a is None or b is None or min(len(a), len(b)) < 2 or number("transBatchA") or number("transBatchB"):
        return ()
    rows, columns = a[-1 if number("transA") else -2], b[-2 if number("transB") else -1]
    longer = max(len(a), len(b)) - 2
    pairs = zip((1,) * (longer + 2 - len(a)) + a[:-2], (1,) * (longer + 2 - len(b)) + b[:-2], strict=True)
    return ((*(max(pair) for pair in pairs), rows, columns),)


def _integer_product(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """QGemm: operands alternate with their scales and zero points."""
    return _product([inputs[0], inputs[3]], number) if len(inputs) > 3 else ()


def _heads_apart(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """MultiHeadAttention: result, and the keys and values with their past."""
    query, key, value = (*inputs, None, None)[:3]
    past = inputs[6] if len(inputs) > 6 else None
    heads = number("num_heads")
    if query is None or len(query) != 3 or key is None or value is None or not heads:
        return ()
    width = value[-1] if len(value) == 3 else value[1] * value[3]
    length = key[-2] + (past[-2] if past else 0)
    present = [(query[0], heads, length, extent // heads) for extent in (query[2], width)]
    return ((query[0], query[1], width), *present)


def _grouped_heads(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """GroupQueryAttention: the result; how long its caches are depends on whether they are shared."""
    query, key = (*inputs, None)[:2]
    heads, groups = number("num_heads"), number("kv_num_heads")
    if query is None or len(query) != 3 or not heads:
        return ()
    packed = query[2] if key else query[2] * heads // (heads + 2 * groups)
    return ((query[0], query[1], packed),)


def _projected_heads(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """Attention with its projection: one third of the weight's columns, unless sizes are stated."""
    x, weight = inputs[:2]
    if x is None or weight is None or number("qkv_hidden_sizes"):
        return ()
    return ((*x[:-1], weight[1] // 3),)


def _quantised_pair(inputs: list[Shape | None], _: Number) -> Sequence[Shape | None]:
    """QLinearAdd and QLinearMul: each operand with its scale and zero point, broadcast."""
    a, b = (*inputs, None, None, None, None)[0:4:3]
    if a is None or b is None:
        return ()
    longer = max(len(a), len(b))
    pairs = zip((1,) * (longer - len(a)) + a, (1,) * (longer - len(b)) + b, strict=True)
    return (tuple(max(pair) if min(pair) else 0 for pair in pairs),)


def _quantised_mean(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """QLinearGlobalAveragePool: one position is left of each channel."""
    x = inputs[0]
    if x is None or len(x) < 3:
        return ()
    ones = (1,) * (len(x) - 2)
    return ((x[0], *ones, x[-1]) if number("channels_last") else (x[0], x[1], *ones),)


def _quantised_join(inputs: list[Shape | None], number: Number) -> Sequence[Shape | None]:
    """QLinearConcat: scale and zero point of the result, then each operand with its own."""
    shapes = inputs[2::3]
    if not shapes or any(shape is None or len(shape) != len(shapes[0] or ()) for shape in shapes):
        return ()
    first = shapes[0] or ()
    axis = number("axis") % max(1, len(first))
    length = sum(shape[axis] for shape in shapes if shape)
    return ((*first[:axis], length, *first[axis + 1 :]),)


_TYPES = [f"tensor({name})" for name in (
    "float", "float16", "bfloat16", "double", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "bool",
)]  # fmt: skip
_RULES: dict[tuple[str, str], _Rule] = {
    ("", "SimplifiedLayerNormalization"): _same,
    **{
        (DOMAIN, name): _same
        for name in ("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "RotaryEmbedding", "MoE", "QMoE", "GroupNorm")
    },
    **{
        (DOMAIN, name): _same
        for name in ("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QuantizeLinear", "DequantizeLinear")
    },
    **{(DOMAIN, name): _quantised_pair for name in ("QLinearAdd", "QLinearMul")},
    (DOMAIN, "QLinearGlobalAveragePool"): _quantised_mean,
    (DOMAIN, "QLinearConcat"): _quantised_join,
    (DOMAIN, "SkipLayerNormalization"): _skip_norm,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_norm,
    (DOMAIN, "MatMulNBits"): _weight_only,
    (DOMAIN, "FusedMatMul"): _product,
    **{(DOMAIN, name): _product for name in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")},
    (DOMAIN, "QGemm"): _integer_product,
    (DOMAIN, "MultiHeadAttention"): _heads_apart,
    (DOMAIN, "GroupQueryAttention"): _grouped_heads,
    (DOMAIN, "Attention"): _projected_heads,
}
