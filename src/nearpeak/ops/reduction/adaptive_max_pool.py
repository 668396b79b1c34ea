"""Adaptive max pooling, whose windows follow from the output size."""

from typing import Any

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.reduction.adaptive_avg_pool import pairs_of, spans_of
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.window_maxima import all_maxima, overloads, references, returned_work


def adaptive_max_pool(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1,
    indices: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of maxima over windows that split d, h, w into od, oh, ow parts.

    Counts: one vector FLOP per comparison, one fewer than the window's positions. The windows are those of adaptive
    average pooling; together they meet every position.

    Args:
        indices: the position of each maximum is written as int64; leave out where it is not read.

    Source: definition, as PyTorch states it.

    >>> adaptive_max_pool(1, 2, 7, 3, DType(name="bf16", bits_count=16)).flop
    {'vector.fp32': 12}
    """
    inputs, outputs = batch * channels * d * h * w, batch * channels * od * oh * ow
    outputs = unless_empty(inputs, outputs)
    pairs = batch * channels * pairs_of(d, od) * pairs_of(h, oh) * pairs_of(w, ow)
    return Work(
        flop={unit(dtype): pairs - outputs},
        read_bytes=dtype.bytes(unless_empty(outputs, inputs)),
        write_bytes=dtype.bytes(outputs) + indices * INDEX.bytes(outputs),
    )


def _backward(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1
) -> Work:
    """Return the least work of adding each output's gradient where its maximum was, as the saved indices say."""
    inputs = batch * channels * d * h * w
    return returned_work(dtype, inputs, batch * channels * od * oh * ow)


def _winners(arrays: dict[str, Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    rows = zip(sliding.extents(arguments), sliding.extents(arguments, "o"), strict=True)
    spans = [spans_of(extent, parts) for extent, parts in rows]
    return all_maxima(arrays["input"], [spans] * (arguments["batch"] * arguments["channels"]))


_reference, _backward_reference = references(_winners)


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    parts = sliding.extents(arguments, "o")
    run = F.adaptive_max_pool2d if len(parts) == 2 else F.adaptive_max_pool3d
    output, indices = run(tensors["input"], parts, return_indices=True)
    return {"output": output, "indices": indices} if arguments["indices"] else {"output": output}


OPERATOR = Operator(
    forward=adaptive_max_pool,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="exact", rounds=("ties", "close", "deep")),
    inputs=sliding.pooled_input,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=overloads("adaptive_max_pool", sliding.adaptive_call),  # indices may be in use, which no call shows
)
