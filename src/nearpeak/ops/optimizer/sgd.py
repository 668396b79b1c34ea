"""One step of stochastic gradient descent."""

from typing import Any

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.mixed_formats import in_widest
from nearpeak.ops.shared.torch_names import torch_dtype

RATE, MOMENTUM, DECAY, DAMPENING = 0.1, 0.9, 0.01, 0.25
"""Learning rate, momentum, weight decay and dampening of reference and PyTorch call."""


def sgd(
    parameters: int, dtype: DType, grad_dtype: DType | None = None, state_dtype: DType | None = None,
    momentum: bool = False, nesterov: bool = False, decay: bool = False, first_step: bool = False,
    dampening: bool = False, master: str = "",
) -> Work:  # fmt: skip
    """Return the least work of p -= rate * g, with momentum b = momentum * b + g in place of g.

    Counts: 2 FLOP per parameter; 2 more each for momentum, Nesterov's look-ahead and weight decay; 1 for dampening, a
    factor of the gradient in the momentum.

    Args:
        state_dtype: format of the momentum buffer.
        first_step: the buffer is written but not read, and starts as the gradient.
        master: format of a wider copy of the parameters that is what is read and updated; the parameters themselves
            are then written only. Empty without.

    Source: Sutskever et al. 2013, Proceedings of Machine Learning Research 28(3), pages 1139-1147.

    >>> work = sgd(8, DType(name="fp32", bits_count=32), momentum=True)
    >>> work.flop, work.read_bytes
    ({'vector.fp32': 32}, 96)
    """
    if nesterov and not momentum:
        raise SpecError("sgd: nesterov=true needs momentum=true")
    if dampening and (nesterov or not momentum):
        raise SpecError("sgd: dampening=true needs momentum=true and nesterov=false")
    state = (state_dtype or dtype).bytes(parameters)
    updated = dtype_of(master) if master else dtype
    reads_buffer = momentum and not first_step
    return Work(
        flop={
            unit(updated): (2 + 2 * reads_buffer + 2 * nesterov + 2 * decay + (dampening and reads_buffer)) * parameters
        },
        read_bytes=updated.bytes(parameters) + (grad_dtype or dtype).bytes(parameters) + reads_buffer * state,
        write_bytes=updated.bytes(parameters) + momentum * state + (dtype.bytes(parameters) if master else 0),
    )


def _inputs(
    parameters: int, dtype: str, grad_dtype: str, state_dtype: str, momentum: bool, master: str, **_: Any
) -> dict[str, Tensor]:
    tensors = {"parameter": Tensor(shape=(parameters,), dtype=master or dtype)}
    tensors |= {"grad": Tensor(shape=(parameters,), dtype=grad_dtype)}
    return tensors | ({"buffer": Tensor(shape=(parameters,), dtype=state_dtype)} if momentum else {})


def _reference(
    arrays: dict[str, Any],
    momentum: bool,
    nesterov: bool,
    decay: bool,
    first_step: bool,
    dampening: bool,
    master: str,
    **_: Any,
) -> dict[str, Any]:
    p, g = arrays["parameter"], arrays["grad"]
    g = g + DECAY * p if decay else g
    if not momentum:
        outputs = {"parameter": p - RATE * g}
    else:
        damped = g * (1 - DAMPENING) if dampening else g
        buffer = g if first_step else MOMENTUM * arrays["buffer"] + damped
        outputs = {"parameter": p - RATE * (g + MOMENTUM * buffer if nesterov else buffer), "buffer": buffer}
    return outputs | ({"copy": outputs["parameter"]} if master else {})


def _torch_call(
    tensors: dict[str, Any], dtype: str, momentum: bool, nesterov: bool, decay: bool, first_step: bool, dampening: bool,
    master: str, **_: Any,
) -> dict[str, Any]:  # fmt: skip
    import torch

    def step(wide: dict[str, Any]) -> None:
        p, buffers = wide["parameter"], [wide["buffer"]] if momentum else []
        run = _one_by_one if broken_when_fused(p) else torch._fused_sgd_
        run(
            [p], [tensors["grad"].to(p.dtype)], buffers,
            weight_decay=DECAY if decay else 0.0, momentum=MOMENTUM if momentum else 0.0, lr=RATE,
            dampening=DAMPENING if dampening else 0.0, nesterov=nesterov, maximize=False, is_first_step=first_step,
        )  # fmt: skip

    outputs = in_widest(tensors, [name for name in ("parameter", "buffer") if name in tensors], step, "grad")
    return outputs | ({"copy": tensors["parameter"].to(torch_dtype(torch, dtype))} if master else {})


def broken_when_fused(parameter: Any) -> bool:
    """Return whether PyTorch's fused kernel is wrong for such a parameter: on CPUs, in formats of 16 bits.

    As of PyTorch 2.13.0 it leaves what fills whole vectors as it was: of 33 parameters of 1 with gradients of 1 and a
    rate of 0.5, the first 32 are still 1 after the step, in bf16 and fp16; what is left over behind them is right.
    """
    return bool(parameter.device.type == "cpu" and parameter.element_size() == 2)


def _one_by_one(parameters: list[Any], grads: list[Any], buffers: list[Any], **settings: Any) -> None:
    """Do what the fused kernel does by PyTorch's step for single tensors."""
    from torch.optim.sgd import sgd as step

    first = settings.pop("is_first_step")
    updated: list[Any] = [None if first else buffer for buffer in buffers] or [None] * len(parameters)
    step(parameters, grads, updated, foreach=False, fused=False, **settings)
    for buffer, made in zip(buffers, updated, strict=False):
        buffer.copy_(made)


def _from_aten(site: AtenSite) -> tuple[Match, ...]:
    """Match _fused_sgd_: one case per combination of formats, over all tensors of the list."""
    buffers = site.args["momentum_buffer_list"]
    first = bool(site.args["is_first_step"])
    momentum = bool(buffers) and any(isinstance(b, Tensor) for b in buffers)
    options = {
        "momentum": momentum, "nesterov": bool(site.args["nesterov"]) and momentum,
        "decay": site.args["weight_decay"] != 0, "first_step": first,
        "dampening": momentum and site.args["dampening"] != 0 and not site.args["nesterov"],
    }  # fmt: skip
    matches = by_format(site.args["self"], site.args["grads"], buffers if momentum else [], options)
    unread = {f"momentum_buffer_list[{i}]": 0 for i in range(len(buffers))} if first else {}
    unwritten = {f"write:grads[{i}]": 0 for i in range(len(site.args["grads"]))}
    return (Match(arguments=matches[0].arguments, touched_bytes=unread | unwritten), *matches[1:]) if matches else ()


def by_format(
    parameters: list[Tensor], grads: list[Tensor], states: list[Tensor], options: dict[str, Any]
) -> tuple[Match, ...]:
    """Return one optimizer case per combination of formats of parameter, gradient and state."""
    counts: dict[tuple[str, str, str], int] = {}
    for index, parameter in enumerate(parameters):
        state = states[index].dtype if states else parameter.dtype
        key = (parameter.dtype, grads[index].dtype, state)
        counts[key] = counts.get(key, 0) + parameter.elements
    return tuple(
        Match(arguments={"parameters": n, "dtype": p, "grad_dtype": g, "state_dtype": s, **options})
        for (p, g, s), n in counts.items()
    )


OPERATOR = Operator(
    forward=sgd,
    family="optimizer",
    tolerance=Tolerance(kind="normalisation", steps_count=3, states=("buffer",), rounds=("first_step",)),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten._fused_sgd_.default", "aten._fused_sgd_.tensor_lr"), _from_aten),
)
