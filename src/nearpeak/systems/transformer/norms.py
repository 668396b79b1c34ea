"""Norms, residuals and dropout of a transformer layer, as fused kernels or as the kernels of eager PyTorch."""

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.pass_calls import PassCalls, kernel, pointwise


def norm_calls(name: str, shape: TransformerShape, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the calls of one norm over rows [rows, width].

    A layer norm is one kernel in PyTorch too, its gradient two (inputs, then weights); an RMS norm of eager PyTorch is
    the eight kernels of its formula in fp32 (transformers 5.23, LlamaRMSNorm).
    """
    dtype = layout.formats.activation
    if shape.norm == "layer_norm":
        bias = shape.has_norm_bias
        return PassCalls(
            forward=(kernel(name, "layer_norm", rows=rows, hidden=width, dtype=dtype, bias=bias),),
            backward=(
                kernel(name, "layer_norm", "backward", rows=rows, hidden=width, dtype=dtype, bias=bias, kernel_count=2),
            ),
        )
    if layout.fused("norm"):
        return PassCalls(
            forward=(kernel(name, "rms_norm", rows=rows, hidden=width, dtype=dtype),),
            backward=(kernel(name, "rms_norm", "backward", rows=rows, hidden=width, dtype=dtype, kernel_count=2),),
        )
    return _eager_rms_norm(name, rows, width, dtype)


def _eager_rms_norm(name: str, rows: int, width: int, dtype: str) -> PassCalls:
    """Return an RMS norm as eager PyTorch runs it: x (mean(x²) + ε)^(-1/2) in fp32, times the weight."""
    elements = rows * width
    widened, narrowed = casts(name, elements, dtype)

    def scaled(number_format: str, function: str, a: int = elements, b: int = 0) -> RankCall:
        return kernel(name, "elementwise", elements=elements, dtype=number_format, function=function, a=a, b=b)

    return PassCalls(
        forward=(
            *widened,
            pointwise(name, elements, "fp32", "square"),
            kernel(name, "reduce", outputs=rows, reduced=width, dtype="fp32", function="mean"),
            pointwise(name, rows, "fp32", "add"),
            pointwise(name, rows, "fp32", "rsqrt"),
            scaled("fp32", "mul", b=rows),
            *narrowed,
            scaled(dtype, "mul", a=width, b=elements),
        ),
        backward=(
            # Of weight times x: the gradient of each factor, the weight's summed over rows.
            scaled(dtype, "mul", b=width),
            pointwise(name, elements, dtype, "mul", operands=2),
            kernel(name, "reduce", outputs=width, reduced=rows, dtype=dtype),
            *widened,
            # Of x times the root: likewise, the root's summed over the row.
            pointwise(name, elements, "fp32", "mul", operands=2),
            scaled("fp32", "mul", b=rows),
            kernel(name, "reduce", outputs=rows, reduced=width, dtype="fp32"),
            pointwise(name, rows, "fp32", "cube"),
            pointwise(name, rows, "fp32", "mul"),
            pointwise(name, rows, "fp32", "mul", operands=2),
            # Of the mean of x²: spread over the row, times 2 x, added to the other branch.
            scaled("fp32", "div", a=rows),
            pointwise(name, elements, "fp32", "pow"),
            pointwise(name, elements, "fp32", "mul"),
            pointwise(name, elements, "fp32", "mul", operands=2),
            pointwise(name, elements, "fp32", "add", operands=2),
            *narrowed,
        ),
    )


def casts(name: str, elements: int, dtype: str) -> tuple[tuple[RankCall, ...], tuple[RankCall, ...]]:
    """Return the conversion to fp32 and the one back; none where the format is fp32."""
    if dtype == "fp32":
        return (), ()
    return (
        (kernel(name, "cast", elements=elements, dtype=dtype, out_dtype="fp32"),),
        (kernel(name, "cast", elements=elements, dtype="fp32", out_dtype=dtype),),
    )


def branch_calls(name: str, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the sum of the gradients of the two branches that read the residual stream, the part's and its own."""
    summed = pointwise(f"{name}.sum", rows * width, layout.formats.activation, "add", operands=2)
    return PassCalls(backward=(summed,))


def residual_calls(name: str, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the calls that add a part's result to the residual stream, with dropout where there is some."""
    dtype, elements = layout.formats.activation, rows * width
    if layout.fused("residual_norm"):
        return PassCalls()  # the norm that follows adds it
    if not layout.fused("residual"):
        dropped = dropout_calls(name, elements, layout)
        return PassCalls(
            forward=(*dropped.forward, pointwise(name, elements, dtype, "add", operands=2)), backward=dropped.backward
        )
    if not layout.has_dropout:
        return PassCalls(forward=(pointwise(name, elements, dtype, "add", operands=2),))
    # The mask is one byte an element, written in the forward pass and read in the backward pass.
    return PassCalls(
        forward=(pointwise(name, elements, dtype, "addcmul", operands=3, c_dtype="uint8"),),
        backward=(pointwise(name, elements, dtype, "mul", operands=2, b_dtype="uint8"),),
    )


def dropout_calls(name: str, elements: int, layout: Layout) -> PassCalls:
    """Return the calls of dropout as a kernel of its own; none where nothing is dropped."""
    if not layout.has_dropout:
        return PassCalls()
    dtype = layout.formats.activation
    return PassCalls(
        forward=(kernel(f"{name}.dropout", "dropout", elements=elements, dtype=dtype),),
        backward=(kernel(f"{name}.dropout", "dropout", "backward", elements=elements, dtype=dtype),),
    )


def residual_norm_calls(name: str, shape: TransformerShape, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return a norm that adds the residual first and writes both sums and norms, where a stack fuses them.

    The kernel reads two tensors and writes two: the bytes of a norm over twice the rows, as which it is stated.
    """
    if not layout.fused("residual_norm"):
        return norm_calls(name, shape, rows, width, layout)
    return norm_calls(name, shape, 2 * rows, width, layout)
