"""One step of optimizers with element-wise states: Adagrad, RMSprop, Adadelta, NAdam, RAdam, Lion."""

# One file for all: they differ in a row of formulas alone, from which work, reference and states follow.

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from math import sqrt
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.optimizer.sgd import by_format
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.mixed_formats import in_widest
from nearpeak.ops.shared.reference.formula import formula, formulas
from nearpeak.ops.shared.torch_names import torch_dtype

STEP, RATE = 10, 0.01
"""Number of the step and learning rate of reference and PyTorch call; the work does not depend on them."""
BETAS = 0.9, 0.999
"""How much of Adam's averages stays from step to step."""
_POWERS = 0.9**STEP, 0.999**STEP
"""How much of their first values is left at step STEP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One optimizer: how parameter p and states follow from the gradient g."""

    states: tuple[str, ...]
    """States of a parameter, each read and written."""
    updates: Mapping[str, str]
    """Formula of each new value, in order; `s_new` for state s, `p_new` for the parameter."""
    scalars: Mapping[str, float]
    """Values of the formulas' numbers at step STEP and learning rate RATE."""
    torch: str = ""
    """Class below torch.optim; empty where PyTorch has none."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the class other than the learning rate."""
    keys: tuple[str, ...] = ()
    """What the class calls the states."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the class's state: numbers that depend on the step."""
    by_powers: Callable[[float, float], Mapping[str, float]] | None = None
    """The scalars that follow from the step, of Adam's two betas to its power, where there are such ones."""
    source: str
    """Where the optimizer was published."""


_MEAN, _SQUARE = "beta * m + rest * g", "alpha * v + part * (g * g)"
_ADAM = {"beta": 0.9, "rest": 1 - 0.9, "alpha": 0.999, "part": 1 - 0.999, "eps": 1e-8}
_RMS = {"alpha": 0.99, "part": 1 - 0.99, "eps": 1e-8, "rate": RATE}
_TIELEMAN = "Tieleman and Hinton 2012, COURSERA Neural Networks for Machine Learning, lecture 6.5"


def _nadam(_: float, power_2: float) -> dict[str, float]:
    mu, mu_next = (BETAS[0] * (1 - 0.5 * 0.96 ** (step * 0.004)) for step in (STEP, STEP + 1))
    return {
        "ahead": RATE * (1 - mu) / (1 - 0.5 * mu), "rate": RATE * mu_next / (1 - 0.5 * mu * mu_next),
        "root": 1 / sqrt(1 - power_2),
    }  # fmt: skip


def _radam(power_1: float, power_2: float) -> dict[str, float]:
    most = 2 / (1 - BETAS[1]) - 1
    length = most - 2 * STEP * power_2 / (1 - power_2)
    rectified = sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return {"rate": RATE * rectified * sqrt(1 - power_2) / (1 - power_1)}


def _adamax(power_1: float, _: float) -> dict[str, float]:
    return {"rate": RATE / (1 - power_1)}


RULES: Mapping[str, Rule] = {
    "adagrad": Rule(
        states=("s",), keys=("sum",), torch="Adagrad", scalars={"rate": RATE, "eps": 1e-10},
        updates={"s_new": "s + g * g", "p_new": "p - rate * g / (sqrt(s_new) + eps)"},
        source="Duchi et al. 2011, Journal of Machine Learning Research 12, pages 2121-2159",
    ),
    "rmsprop": Rule(
        states=("v",), keys=("square_avg",), torch="RMSprop", scalars=_RMS,
        updates={"v_new": _SQUARE, "p_new": "p - rate * g / (sqrt(v_new) + eps)"}, source=_TIELEMAN,
    ),
    "rmsprop_momentum": Rule(
        states=("v", "b"), keys=("square_avg", "momentum_buffer"), torch="RMSprop", options={"momentum": 0.9},
        scalars=_RMS | {"mu": 0.9}, source=_TIELEMAN,
        updates={"v_new": _SQUARE, "b_new": "mu * b + g / (sqrt(v_new) + eps)", "p_new": "p - rate * b_new"},
    ),
    "rmsprop_centered": Rule(
        states=("v", "m", "b"), keys=("square_avg", "grad_avg", "momentum_buffer"), torch="RMSprop",
        options={"momentum": 0.9, "centered": True}, source="Graves 2013, arXiv:1308.0850, section 4.2",
        scalars=_RMS | {"mu": 0.9, "beta": 0.99, "rest": 1 - 0.99},
        updates={
            "v_new": _SQUARE, "m_new": _MEAN, "b_new": "mu * b + g / (sqrt(v_new - m_new * m_new) + eps)",
            "p_new": "p - rate * b_new",
        },
    ),
    "adadelta": Rule(
        states=("v", "u"), keys=("square_avg", "acc_delta"), torch="Adadelta",
        scalars={"alpha": 0.9, "part": 1 - 0.9, "eps": 1e-6, "rate": RATE},
        updates={
            "v_new": _SQUARE, "d": "sqrt(u + eps) / sqrt(v_new + eps) * g", "u_new": "alpha * u + part * (d * d)",
            "p_new": "p - rate * d",
        },
        source="Zeiler 2012, arXiv:1212.5701, algorithm 1",
    ),
    "nadam": Rule(
        states=("m", "v"), keys=("exp_avg", "exp_avg_sq"), torch="NAdam", extra={"mu_product": 0.5},
        scalars=_ADAM | _nadam(*_POWERS), by_powers=_nadam,
        updates={
            "m_new": _MEAN, "v_new": _SQUARE, "p_new": "p - (ahead * g + rate * m_new) / (root * sqrt(v_new) + eps)",
        },
        source="Dozat 2016, ICLR workshop, Incorporating Nesterov momentum into Adam, algorithm 2",
    ),
    "radam": Rule(
        states=("m", "v"), keys=("exp_avg", "exp_avg_sq"), torch="RAdam",
        scalars=_ADAM | _radam(*_POWERS), by_powers=_radam,
        updates={"m_new": _MEAN, "v_new": _SQUARE, "p_new": "p - rate * m_new / (sqrt(v_new) + eps)"},
        source="Liu et al. 2019, arXiv:1908.03265, algorithm 2",
    ),
    "adamax": Rule(
        states=("m", "u"), keys=("exp_avg", "exp_inf"), torch="Adamax",
        scalars=_ADAM | _adamax(*_POWERS), by_powers=_adamax,
        updates={
            "m_new": _MEAN, "u_new": "maximum(alpha * u, abs(g) + eps)", "p_new": "p - rate * m_new / u_new",
        },
        source="Kingma and Ba 2015, arXiv:1412.6980, algorithm 2",
    ),
    "asgd": Rule(
        states=("a",), keys=("ax",), torch="ASGD", extra={"eta": RATE, "mu": 0.25},
        scalars={"kept": 1 - 1e-4 * RATE, "rate": RATE, "mu": 0.25},
        updates={"p_new": "kept * p - rate * g", "a_new": "a + mu * (p_new - a)"},
        source="Polyak and Juditsky 1992, SIAM Journal on Control and Optimization 30(4), pages 838-855",
    ),
    "rprop": Rule(
        states=("o", "w"), keys=("prev", "step_size"), torch="Rprop",
        scalars={"up": 1.2, "down": 0.5, "least": 1e-6, "most": 50.0},
        updates={
            "turn": "g * o",
            "w_new": "minimum(maximum(where(turn > 0, w * up, where(turn < 0, w * down, w)), least), most)",
            "o_new": "where(turn < 0, 0, g)", "p_new": "p - sign(o_new) * w_new",
        },
        source="Riedmiller and Braun 1993, IEEE International Conference on Neural Networks, pages 586-591",
    ),
    "lion": Rule(
        states=("m",), scalars={"beta": 0.9, "rest": 1 - 0.9, "alpha": 0.99, "part": 1 - 0.99, "kept": 1 - 0.1 * RATE,
                                "rate": RATE},
        updates={"p_new": f"kept * p - rate * sign({_MEAN})", "m_new": "alpha * m + part * g"},
        source="Chen et al. 2023, arXiv:2302.06675, algorithm 2",
    ),
}  # fmt: skip
"""All rules by name."""


def optimizer(
    parameters: int,
    dtype: DType,
    grad_dtype: DType | None = None,
    state_dtype: DType | None = None,
    rule: str = "lion",
    master: str = "",
) -> Work:
    """Return the least work of one step of the optimizer `rule`.

    Counts: the FLOP and special evaluations of the rule's formulas, each expression once; parameter, gradient and
    states are read once, parameter and states written once, however many kernels take part.

    Args:
        state_dtype: format of the states.
        rule: adagrad, rmsprop, rmsprop_momentum, rmsprop_centered, adadelta, nadam, radam, adamax, asgd, rprop, lion.
        master: format of a wider copy of the parameters that is what is read and updated; the parameters themselves
            are then written only. Empty without.

    Source: the publications of the rules, stated with each.

    >>> work = optimizer(8, dtype_of("bf16"), state_dtype=dtype_of("fp32"), rule="lion", master="fp32")
    >>> work.read_bytes, work.write_bytes
    (80, 80)
    """
    row = rule_of(rule)
    costs = formulas(*row.updates.values())
    updated = dtype_of(master) if master else dtype
    states = len(row.states) * (state_dtype or dtype).bytes(parameters)
    return Work(
        flop={unit(updated): sum(cost.flop_count for cost in costs) * parameters},
        special_count=sum(cost.special_count for cost in costs) * parameters,
        read_bytes=updated.bytes(parameters) + (grad_dtype or dtype).bytes(parameters) + states,
        write_bytes=updated.bytes(parameters) + states + (dtype.bytes(parameters) if master else 0),
    )


def rule_of(name: str) -> Rule:
    """Return the rule called `name`."""
    return entry_of("optimizer", RULES, name)


def _inputs(
    parameters: int, dtype: str, grad_dtype: str, state_dtype: str, rule: str, master: str
) -> dict[str, Tensor]:
    formats = {"p": master or dtype, "g": grad_dtype, **dict.fromkeys(rule_of(rule).states, state_dtype)}
    return {name: Tensor(shape=(parameters,), dtype=format_) for name, format_ in formats.items()}


def _stored(
    arrays: dict[str, Any], store: Callable[[Any, str], Any], rule: str, master: str, **_: Any
) -> dict[str, Any]:
    """Return the same where what follows from the step is computed in fp32, as steps within a CUDA graph do.

    `1 - beta**step` is small: of the last place of beta it keeps a hundred.
    """
    row = rule_of(rule)
    powers = (float(store(np.array(beta), "fp32")) ** STEP for beta in BETAS)
    changed = {} if row.by_powers is None else row.by_powers(*powers)
    return _stepped(arrays, row, changed, master)


def _stepped(arrays: dict[str, Any], row: Rule, changed: Mapping[str, float], master: str) -> dict[str, Any]:
    """Return parameter and states after a step; `changed` are scalars that differ from the rule's."""
    known = {**row.scalars, **changed, **arrays}
    for name, text in row.updates.items():
        known[name] = formula(text)(**known)
    outputs = {name: known[f"{name}_new"] for name in ("p", *row.states)}
    return outputs | ({"copy": outputs["p"]} if master else {})


def _torch_call(tensors: dict[str, Any], dtype: str, rule: str, master: str, **_: Any) -> dict[str, Any]:
    import torch

    row = rule_of(rule)

    def step(wide: dict[str, Any]) -> None:
        if not row.torch:
            p, g, m = wide["p"], tensors["g"].to(wide["p"].dtype), wide["m"]  # Lion, which PyTorch does not have
            direction = torch.sign(torch.lerp(m.to(g), g, 0.1))
            wide["p"], wide["m"] = p * (1 - 0.1 * RATE) - RATE * direction, torch.lerp(m, g.to(m), 0.01)
            return
        p = wide["p"].requires_grad_()
        p.grad = tensors["g"].to(p.dtype)
        # A graph has room for steps only where the number of the step lies on the device too.
        kind = getattr(torch.optim, row.torch)
        takes_it = "capturable" in signature(kind).parameters
        captured = takes_it and p.is_cuda and torch.cuda.is_current_stream_capturing()
        made = kind([p], lr=RATE, foreach=False, **row.options, **({"capturable": True} if captured else {}))
        number = p.new_zeros((), device=p.device if captured else "cpu")
        extra = {name: number.new_full((), value) for name, value in row.extra.items()}
        states = dict(zip(row.keys, (wide[name] for name in row.states), strict=True))
        made.state[p] = {"step": torch.full((), float(STEP - 1), device=number.device), **extra, **states}
        made.step()

    outputs = {name: tensor.detach() for name, tensor in in_widest(tensors, ("p", *row.states), step, "g").items()}
    return outputs | ({"copy": outputs["p"].to(torch_dtype(torch, dtype))} if master else {})


def _from_aten(site: AtenSite) -> tuple[Match, ...]:
    """Match _fused_adagrad_: one case per combination of formats, over all tensors of the list."""
    grads = site.args["grads"]
    matches = by_format(site.args["self"], grads, site.args["state_sums"], {"rule": "adagrad"})
    unwritten = {f"write:grads[{i}]": 0 for i in range(len(grads))} if site.args.get("grad_scale") is None else {}
    return (Match(arguments=matches[0].arguments, touched_bytes=unwritten), *matches[1:]) if matches else ()


OPERATOR = Operator(
    forward=optimizer,
    family="optimizer",
    source="the publications of the rules: " + "; ".join(dict.fromkeys(row.source for row in RULES.values())),
    tolerance=Tolerance(
        kind="normalisation",
        positive=("s", "v", "u", "w"),
        special="unspecified",
        steps_count=2,
        # What may differ by the powers of the betas is small compared with large parameters.
        states=tuple(dict.fromkeys(name for row in RULES.values() for name in row.states)),
        rounds=("tiny", "first_step", *(f"far:{name}" for name, row in RULES.items() if row.by_powers)),
    ),
    inputs=_inputs,
    reference=lambda arrays, rule, master, **_: _stepped(arrays, rule_of(rule), {}, master),
    stored=_stored,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten._fused_adagrad_.default", "aten._fused_adagrad_.tensor_lr"), _from_aten),
)
