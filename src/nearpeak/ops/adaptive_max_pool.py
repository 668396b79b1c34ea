"""Adaptive max pooling: the windows follow from the wanted output extents."""

from typing import Any

from nearpeak.core.dtype import DType, dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops import _sliding as sliding
from nearpeak.ops._arithmetic import unit
from nearpeak.ops._arrays import unless_empty
from nearpeak.ops._maxima import all_maxima, returned
from nearpeak.ops._operator import AtenSite, Match, Numerics, Operator
from nearpeak.ops.adaptive_avg_pool import pairs_of, spans_of

_INDEX = dtype_of("int64")


def adaptive_max_pool(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1,
    indices: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of maxima over windows that split d, h, w into od, oh, ow parts.

    Counts: one vector FLOP per comparison, one fewer than the window's positions. The windows are those of adaptive
    average pooling; together they meet every position.

    Args:
        indices: the position of each maximum is written as int64; leave out where nobody reads it.

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
        write_bytes=dtype.bytes(outputs) + indices * _INDEX.bytes(outputs),
    )


def _backward(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1
) -> Work:
    """Return the least work of adding each output's gradient where its maximum was, as the saved indices say."""
    inputs = batch * channels * d * h * w
    outputs = unless_empty(inputs, batch * channels * od * oh * ow)
    return Work(
        flop={unit(dtype): outputs},
        read_bytes=dtype.bytes(outputs) + _INDEX.bytes(outputs),
        write_bytes=dtype.bytes(inputs),
    )


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    shape = (arguments["batch"], arguments["channels"], *sliding.extents(arguments))
    return {"input": Tensor(shape=shape, dtype=arguments["dtype"])}


def _winners(x: Any, arguments: dict[str, Any]) -> tuple[Any, Any]:
    rows = zip(sliding.extents(arguments), sliding.extents(arguments, "o"), strict=True)
    spans = [spans_of(extent, parts) for extent, parts in rows]
    return all_maxima(x, [spans] * (x.shape[0] * x.shape[1]))


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    best, where = _winners(arrays["input"], arguments)
    return {"output": best, "indices": where} if arguments["indices"] else {"output": best}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    _, where = _winners(arrays["input"], arguments)
    return {"grad_input": returned(arrays["grad_output"], where, arrays["input"].shape)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    parts = sliding.extents(arguments, "o")
    run = F.adaptive_max_pool2d if len(parts) == 2 else F.adaptive_max_pool3d
    output, indices = run(tensors["input"], parts, return_indices=True)
    return {"output": output, "indices": indices} if arguments["indices"] else {"output": output}


def _from_aten(site: AtenSite) -> Match:
    """Match adaptive max pooling and its gradient; whether the indices are used is not visible here."""
    x, count, back = site.args["self"], sliding.window_rank(site), "grad_output" in site.args
    parts = (site.args["grad_output"] if back else site.outputs[0]).shape[-count:]
    arguments = sliding.planes(x, count) | sliding.named("", x.shape[-count:], count) | sliding.named("o", parts, count)
    if not back:
        return Match(arguments=arguments)
    return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0})


OPERATOR = Operator(
    forward=adaptive_max_pool,
    backward=_backward,
    source="definition, as PyTorch states it",
    numerics=Numerics(kind="exact"),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        f"aten.adaptive_max_pool{rank}d{phase}.{end}": _from_aten
        for rank in (2, 3)
        for phase, end in (("", "default"), ("_backward", "default"), ("_backward", "grad_input"))
    },
)
