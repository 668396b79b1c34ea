"""Work, shapes and checks that convolution and transposed convolution share."""

from typing import Any, NamedTuple

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import bilinear, contraction, shared_operands
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_multiple, required_positive
from nearpeak.ops.shared.window_taps import Taps


class Side(NamedTuple):
    """Elements of one tensor of a convolution."""

    elements: int
    """All of them."""
    live: int
    """Those that take part in a product."""


class Parts(NamedTuple):
    """The three tensors of a convolution, and the products that they share."""

    products: int
    """Multiply-adds."""
    reuse: int
    """Most (output, tap) pairs that one input position serves."""
    input: Side
    """The convolved tensor."""
    weight: Side
    """The kernel."""
    output: Side
    """The result."""


def parts_of(batch: int, in_channels: int, out_channels: int, groups: int, reach: Taps) -> Parts:
    """Return the parts of a convolution whose taps fall as `reach` says."""
    weights = out_channels * (in_channels // groups)
    inputs, outputs = batch * in_channels, batch * out_channels
    return Parts(
        products=batch * weights * reach.pair_count,
        reuse=reach.reuse_count,
        input=Side(inputs * reach.size, inputs * reach.touched_count),
        weight=Side(weights * reach.taps, weights * reach.live_tap_count),
        output=Side(outputs * reach.outputs, outputs * reach.live_output_count),
    )


def transposed(parts: Parts) -> Parts:
    """Return the parts with input and output exchanged."""
    return parts._replace(input=parts.output, output=parts.input)


def check_groups(op: str, groups: int, in_channels: int, out_channels: int) -> None:
    """Refuse groups that do not divide the channels."""
    required_positive(op, groups=groups)
    required_multiple(op, {"groups": groups}, in_channels=in_channels, out_channels=out_channels)


def forward_work(parts: Parts, dtype: DType, out: DType, out_channels: int, *, bias: bool) -> Work:
    """Return the least work of the output."""
    products, outputs = parts.products, parts.output.elements
    return Work(
        flop=contraction(dtype, products, outputs if bias else None),
        read_bytes=dtype.bytes(unless_empty(products, parts.input.live))
        + dtype.bytes(unless_empty(products, parts.weight.live))
        + out.bytes(unless_empty(outputs, bias * out_channels)),
        write_bytes=out.bytes(outputs),
        contraction=shared_operands((dtype, out), products, parts.reuse),
    )


def backward_work(
    parts: Parts, dtype: DType, out: DType, out_channels: int, *,
    grad_input: bool, grad_weight: bool, grad_bias: bool,
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients; input and weight take the forward products each."""
    products, outputs = parts.products, parts.output.elements
    upstream = unless_empty((grad_input + grad_weight) * products, parts.output.live)
    return Work(
        flop=contraction(dtype, (grad_input + grad_weight) * products, outputs if grad_bias else None),
        read_bytes=out.bytes(outputs if grad_bias else upstream)
        + dtype.bytes(unless_empty(products, grad_input * parts.weight.live))
        + dtype.bytes(unless_empty(products, grad_weight * parts.input.live)),
        write_bytes=dtype.bytes(grad_input * parts.input.elements)
        + dtype.bytes(grad_weight * parts.weight.elements)
        + dtype.bytes(grad_bias * out_channels),
        launch_count=grad_input + grad_weight + grad_bias,
        contraction=shared_operands((dtype, out), (grad_input or grad_weight) * products, parts.reuse),
    )


def fewest(parts: Parts) -> int:
    """Return the multiplications that Winograd's and any other bilinear algorithm needs at least, each pass alike."""
    return bilinear(parts.input.live, parts.weight.live, parts.output.live)


def inputs_of(weight: tuple[int, ...], **arguments: Any) -> dict[str, Tensor]:
    """Return the tensors that are read; `weight` is the shape of the kernel."""
    dtype, channels, layout = arguments["dtype"], arguments["out_channels"], arguments["layout"]
    x = (arguments["batch"], arguments["in_channels"], *sliding.extents(arguments))
    tensors = {
        "input": Tensor(shape=x, dtype=dtype, strides=sliding.strides_of(x, layout)),
        "weight": Tensor(shape=weight, dtype=dtype, strides=sliding.strides_of(weight, layout)),
    }
    return tensors | ({"bias": Tensor(shape=(channels,), dtype=arguments["out_dtype"])} if arguments["bias"] else {})
