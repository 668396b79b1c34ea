"""Rotary position embedding of queries and keys, as one kernel each or as the kernels of eager PyTorch."""

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, joined, kernel, pointwise


def rotary_calls(
    name: str, shape: TransformerShape, rows: int, sequences: int, heads: tuple[int, int], layout: Layout, *,
    width: int = 0,
) -> PassCalls:  # fmt: skip
    """Return the calls that turn queries and keys.

    Args:
        rows: tokens of all sequences.
        heads: heads of queries and of keys on the rank.
        width: features of a head; 0 for those of the shape.
    """
    if shape.positions != "rotary":
        return PassCalls()
    turned = 0 if width else shape.rotary_width
    width = width or shape.head_width
    if layout.fused("rotary_qk"):
        return _fused(name, rows, sequences, sum(heads), width, turned, layout)
    turn = _fused if layout.fused("rotary") else _eager
    return joined(*(turn(name, rows, sequences, count, width, turned, layout) for count in heads))


def _fused(name: str, rows: int, sequences: int, heads: int, width: int, turned: int, layout: Layout) -> PassCalls:
    axes: Axes = {
        "batch": sequences, "heads": heads, "positions": rows // sequences, "dim": width,
        "dtype": layout.formats.activation, "rotary": turned or width,
    }  # fmt: skip
    return PassCalls(
        forward=(kernel(name, "rotary_embedding", "forward", axes),),
        backward=(kernel(name, "rotary_embedding", "backward", axes),),
    )


def _eager(name: str, rows: int, sequences: int, heads: int, width: int, turned: int, layout: Layout) -> PassCalls:
    """Return x cos + rotate_half(x) sin: negation of a half, concatenation, two products and a sum.

    Backward, the gradient of the concatenation is two halves, each written into zeros, and their sum; the tables of
    one sequence serve all of them.
    """
    dtype, elements = layout.formats.activation, rows * heads * (turned or width)
    table = rows // sequences * (turned or width)
    product = kernel(name, "elementwise", elements=elements, dtype=dtype, function="mul", b=min(table, elements))
    half = pointwise(name, elements // 2, dtype, "neg")
    added = pointwise(name, elements, dtype, "add", operands=2)
    spread = kernel(name, "copy", elements=elements, dtype=dtype, read=elements // 2)
    return PassCalls(
        forward=(product, half, kernel(name, "copy", elements=elements, dtype=dtype), product, added),
        backward=(product, half, spread, spread, added, product, added),
    )
