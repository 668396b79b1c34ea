"""One step of Adam or AdamW."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.optimizer.sgd import by_format
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.mixed_formats import in_widest
from nearpeak.ops.shared.torch_names import torch_dtype

RATE, BETA_1, BETA_2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01
"""Settings of reference and PyTorch call, which take the first step."""
_DECAY_FLOP = {"none": 0, "decoupled": 1, "l2": 2}


def adamw(
    parameters: int,
    dtype: DType,
    grad_dtype: DType | None = None,
    state_dtype: DType | None = None,
    decay: str = "decoupled",
    amsgrad: bool = False,
    master: str = "",
) -> Work:
    """Return the least work of one step of Adam, with two states per parameter.

    Counts per parameter: 3 FLOP for the first moment, 4 for the second, 2 for the denominator, 2 for the update;
    weight decay 1 when decoupled (AdamW), 2 as a penalty (Adam); 1 for amsgrad's maximum; a root and a division.
    The step number and the settings are not counted.

    Args:
        state_dtype: format of the moments.
        decay: decoupled, l2 or none.
        amsgrad: a third state holds the largest second moment.
        master: format of a wider copy of the parameters that is what is read and updated; the parameters themselves
            are then written only. Empty without.

    Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2; Kingma and Ba 2015, arXiv:1412.6980.

    >>> work = adamw(8, DType(name="fp32", bits_count=32))
    >>> work.flop, work.special_count, work.read_bytes, work.write_bytes
    ({'vector.fp32': 96}, 16, 128, 96)
    """
    required_one_of("adamw", _DECAY_FLOP, decay=decay)
    states = (2 + amsgrad) * (state_dtype or dtype).bytes(parameters)
    updated = dtype_of(master) if master else dtype
    return Work(
        flop={unit(updated): (11 + _DECAY_FLOP[decay] + amsgrad) * parameters},
        special_count=2 * parameters,
        read_bytes=updated.bytes(parameters) + (grad_dtype or dtype).bytes(parameters) + states,
        write_bytes=updated.bytes(parameters) + states + (dtype.bytes(parameters) if master else 0),
    )


def _inputs(
    parameters: int, dtype: str, grad_dtype: str, state_dtype: str, amsgrad: bool, master: str, **_: Any
) -> dict[str, Tensor]:
    formats = {"parameter": master or dtype, "grad": grad_dtype, "moment": state_dtype, "square": state_dtype}
    formats |= {"largest": state_dtype} if amsgrad else {}
    return {name: Tensor(shape=(parameters,), dtype=format_) for name, format_ in formats.items()}


def _reference(arrays: dict[str, Any], decay: str, amsgrad: bool, master: str, **_: Any) -> dict[str, Any]:
    return _stepped(arrays, decay, amsgrad, master, (1 - BETA_1, 1 - BETA_2))


def _stored(
    arrays: dict[str, Any], store: Callable[[Any, str], Any], decay: str, amsgrad: bool, master: str, **_: Any
) -> dict[str, Any]:
    """Return the same where the corrections of the averages are computed in fp32, as steps within a CUDA graph do.

    `1 - beta**step` is small: of the last place of beta it keeps a thousand.
    """
    corrections = tuple(1 - float(store(np.array(beta), "fp32")) for beta in (BETA_1, BETA_2))
    return _stepped(arrays, decay, amsgrad, master, corrections)


def _stepped(
    arrays: dict[str, Any], decay: str, amsgrad: bool, master: str, corrections: tuple[float, ...]
) -> dict[str, Any]:
    p, g = arrays["parameter"], arrays["grad"]
    p, g = (p * (1 - RATE * DECAY) if decay == "decoupled" else p), (g + DECAY * p if decay == "l2" else g)
    moment = BETA_1 * arrays["moment"] + (1 - BETA_1) * g
    square = BETA_2 * arrays["square"] + (1 - BETA_2) * g * g
    largest = np.maximum(arrays["largest"], square) if amsgrad else square
    denominator = np.sqrt(largest) / np.sqrt(corrections[1]) + EPSILON
    outputs = {"parameter": p - RATE / corrections[0] * moment / denominator, "moment": moment, "square": square}
    outputs |= {"largest": largest} if amsgrad else {}
    return outputs | ({"copy": outputs["parameter"]} if master else {})


def _torch_call(
    tensors: dict[str, Any], dtype: str, decay: str, amsgrad: bool, master: str, **_: Any
) -> dict[str, Any]:
    import torch

    fused = torch._fused_adam_ if decay == "l2" else torch._fused_adamw_

    def step(wide: dict[str, Any]) -> None:
        grad = tensors["grad"].to(wide["parameter"].dtype)
        fused(
            [wide["parameter"]], [grad], [wide["moment"]], [wide["square"]], [wide["largest"]] if amsgrad else [],
            [torch.ones((), dtype=torch.float32, device=grad.device)], lr=RATE, beta1=BETA_1, beta2=BETA_2,
            weight_decay=0.0 if decay == "none" else DECAY, eps=EPSILON, amsgrad=amsgrad, maximize=False,
        )  # fmt: skip

    names = [name for name in ("parameter", "moment", "square", "largest") if name in tensors]
    outputs = in_widest(tensors, names, step, "grad")
    return outputs | ({"copy": tensors["parameter"].to(torch_dtype(torch, dtype))} if master else {})


def _from_aten(site: AtenSite) -> tuple[Match, ...]:
    """Match _fused_adam_ and _fused_adamw_: one case per combination of formats, over all tensors of the list."""
    decay = "none" if site.args["weight_decay"] == 0 else "decoupled" if "adamw" in site.name else "l2"
    options = {"decay": decay, "amsgrad": bool(site.args["amsgrad"])}
    matches = by_format(site.args["self"], site.args["grads"], site.args["exp_avgs"], options)
    # The schema says that gradients are written; they are only when a gradient scaler is given.
    scaled = site.args.get("grad_scale") is not None
    unwritten = {} if scaled else {f"write:grads[{i}]": 0 for i in range(len(site.args["grads"]))}
    return (Match(arguments=matches[0].arguments, touched_bytes=unwritten), *matches[1:]) if matches else ()


OPERATOR = Operator(
    forward=adamw,
    family="optimizer",
    tolerance=Tolerance(
        kind="normalisation",
        positive=("square", "largest"),
        special="parameter moment",
        states=("moment", "square", "largest"),
        rounds=("tiny", "first_step"),
        # PyTorch's maximum follows NaN in what fills whole vectors, and not in what is left over behind them.
        unspecified=("amsgrad=True",),
    ),
    inputs=_inputs,
    reference=_reference,
    stored=_stored,
    torch_call=_torch_call,
    aten={f"aten._fused_{name}_.{end}": _from_aten for name in ("adam", "adamw") for end in ("default", "tensor_lr")},
)
