"""Dense feed-forward part of a transformer layer."""

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.pass_calls import PassCalls, joined, pointwise, pointwise_back
from nearpeak.systems.transformer.projections import (
    Projection,
    column_input,
    projection_calls,
    row_output,
    second_gather,
)
from nearpeak.systems.transformer.token_batch import Batch, row_count


def feed_forward_calls(shape: TransformerShape, layout: Layout, batch: Batch) -> PassCalls:
    """Return the calls of a dense feed-forward part on one rank, collectives included, norms not."""
    rows = row_count(batch, layout.cp)
    return split_feed_forward("ffn", shape, rows, shape.ffn // layout.tp, layout)


def split_feed_forward(name: str, shape: TransformerShape, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the products, the activation and the collectives of a feed-forward part of inner width `width` a rank."""
    scheme = layout.formats.ffn
    has_bias = shape.has_bias or shape.has_ffn_bias
    formats, accumulates = layout.formats, layout.fused("accumulate")
    # A fused activation adds the bias of the product before it.
    is_late = layout.fused("activation") and not shape.is_gated

    def product(part: str, inputs: int, outputs: int, *, biased: bool) -> PassCalls:
        projection = Projection(
            name=f"{name}.{part}", rows=rows, inputs=inputs, outputs=outputs, scheme=scheme, has_bias=biased,
            is_input_narrow=part != "down",
        )  # fmt: skip
        return projection_calls(projection, formats, accumulates=accumulates)

    first: tuple[PassCalls, ...]
    if not shape.is_gated:
        first = (product("up", shape.hidden, width, biased=has_bias and not is_late),)
    elif layout.fused("gate_up"):
        first = (product("gate_up", shape.hidden, 2 * width, biased=has_bias),)
    else:
        summed = pointwise(f"{name}.input.sum", rows * shape.hidden, formats.activation, "add", operands=2)
        first = (
            PassCalls(backward=(summed,)),
            product("gate", shape.hidden, width, biased=has_bias),
            product("up", shape.hidden, width, biased=has_bias),
        )
    last = product("down", width, shape.hidden, biased=has_bias and layout.tp == 1)
    return joined(
        column_input(f"{name}.input", rows, shape.hidden, scheme, layout,
                     reductions=2 if layout.reduces_each_projection and len(first) > 1 else 1), *first,
        second_gather(f"{name}.input", rows, shape.hidden, scheme, layout),
        activation_calls(f"{name}.activation", shape, rows * width, layout), last,
        row_output(f"{name}.output", rows, shape.hidden, layout),
    )  # fmt: skip


def activation_calls(name: str, shape: TransformerShape, elements: int, layout: Layout) -> PassCalls:
    """Return the calls of the activation, with the gate where there is one.

    A fused gated activation is one kernel that reads two tensors and writes one; its function is stated as swiglu,
    whatever the activation: the bytes are the same.
    """
    dtype = layout.formats.activation
    function = {"silu": "silu", "gelu": "gelu", "relu": "relu"}[shape.activation]
    if not shape.is_gated:
        return _pair(name, elements, dtype, function, 1)
    if layout.fused("activation"):
        return _pair(name, elements, dtype, "swiglu", 2)
    product: tuple[RankCall, ...] = (pointwise(f"{name}.gate", elements, dtype, "mul", operands=2),)
    plain = _pair(name, elements, dtype, function, 1)
    return joined(plain, PassCalls(forward=product, backward=product * 2))


def _pair(name: str, elements: int, dtype: str, function: str, operands: int) -> PassCalls:
    return PassCalls(
        forward=(pointwise(name, elements, dtype, function, operands=operands),),
        backward=(pointwise_back(name, elements, dtype, function, operands=operands),),
    )
