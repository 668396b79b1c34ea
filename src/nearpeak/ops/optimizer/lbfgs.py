"""One step of L-BFGS without line search."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_positive
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

RATE = 0.5
"""Learning rate of reference and PyTorch call."""
LEAST_STEP = 2.0**-5
"""Size of the shortest step that is drawn: its product with a change at half of it is a normal number in fp16."""
LEAST_CURVATURE = 1e-10
"""Product of a pair of differences up to which PyTorch does not keep it (torch.optim.LBFGS)."""


@free_when_empty
def lbfgs(parameters: int, dtype: DType, history: int = 100) -> Work:
    """Return the least work of one step over all parameters together, the gradient given.

    Counts, for n parameters and h pairs of differences, the newest made here: 2n for the pair, 4n - 2 for its two
    products, 4n and 4n + 1 per pair in the two loops, n each for the gradient's sign and the first guess of the
    curvature, 2n for the update; two divisions. Parameters, gradient, the last gradient, the last direction and h - 1
    pairs are read once; parameters, gradient, direction and the newest pair are written.

    Args:
        history: pairs in use, the newest among them.

    Source: Nocedal and Wright 2006, Numerical Optimization, 2nd edition, algorithm 7.4, as PyTorch states it.

    >>> from nearpeak.core.work.dtype import DTYPES
    >>> work = lbfgs(10, DTYPES["fp32"], history=3)
    >>> work.flop, work.read_bytes, work.write_bytes
    ({'vector.fp32': 341}, 320, 200)
    """
    required_positive("lbfgs", history=history)
    return Work(
        flop={unit(dtype): unless_empty(parameters, 10 * parameters - 2 + history * (8 * parameters + 1))},
        special_count=unless_empty(parameters, 2 + 0 * parameters),
        read_bytes=dtype.bytes(parameters) * (4 + 2 * (history - 1)),
        write_bytes=dtype.bytes(parameters) * 5,
    )


def _inputs(parameters: int, dtype: str, history: int) -> dict[str, Tensor]:
    vector, history_shape = ((parameters,), (history - 1, parameters))
    shapes = {
        "parameter": vector,
        "grad": vector,
        "last_grad": vector,
        "direction": vector,
        "changes": history_shape,
        "steps": history_shape,
    }
    return {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return gradients that change along each step as those of a convex function do, by its curvature there.

    No step is so short that rounding makes its change, or their product, one of any sign or none.
    """
    curvature, newest = (np.abs(drawn[name]) + 0.5 for name in ("changes", "last_grad"))
    steps = _at_least(drawn["steps"], LEAST_STEP)
    direction = _at_least(drawn["direction"], np.maximum(np.abs(drawn["grad"]) / 4, LEAST_STEP))
    last = drawn["grad"] - RATE * direction * newest
    return {"steps": steps, "changes": steps * curvature, "last_grad": last, "direction": direction}


def _at_least(x: Any, least: Any) -> Any:
    return np.copysign(np.maximum(np.abs(x), least), x)


def _stored(arrays: dict[str, Any], store: Callable[[Any, str], Any], dtype: str, **_: Any) -> dict[str, Any]:
    """Return the step whose direction, products and weights are rounded to `dtype` after each pair."""

    def stored(x: Any) -> Any:
        return store(np.asarray(x), dtype)

    g = arrays["grad"]
    if not g.any():
        raise ValueError("lbfgs: the gradient is 0: the search has ended, and no step is taken")
    change, step = g - arrays["last_grad"], RATE * arrays["direction"]
    _check_curvature(float(change @ step))
    pairs = [*zip(arrays["changes"], arrays["steps"], strict=True), (change, step)]
    over = [stored(1 / stored(y @ s)) for y, s in pairs]
    direction, weights = -g, []
    for (y, s), inverse in zip(reversed(pairs), reversed(over), strict=True):
        weights.append(stored(stored(s @ direction) * inverse))
        direction = stored(direction - weights[-1] * y)
    direction = stored(direction * stored(stored(change @ step) / stored(change @ change)))
    for (y, s), inverse, weight in zip(pairs, over, reversed(weights), strict=True):
        direction = stored(direction + stored(weight - stored(stored(y @ direction) * inverse)) * s)
    outputs = {"parameter": arrays["parameter"] + RATE * direction, "last_grad": g, "direction": direction}
    return outputs | {"change": change, "step": step}


def _check_curvature(product: float) -> None:
    """Refuse a newest pair that PyTorch would drop, as the case counts it as in use."""
    if product <= LEAST_CURVATURE:
        raise ValueError(
            f"lbfgs: gradients' and steps' differences have the product {product:.3g}; it must be positive"
        )


def _torch_call(tensors: dict[str, Any], parameters: int, history: int, **_: Any) -> dict[str, Any]:
    import torch

    _check_curvature(float((tensors["grad"] - tensors["last_grad"]) @ (RATE * tensors["direction"])))
    p = tensors["parameter"].requires_grad_()
    p.grad = tensors["grad"]
    made = torch.optim.LBFGS([p], lr=RATE, max_iter=1, history_size=history, tolerance_grad=0.0, tolerance_change=0.0)
    changes, steps = list(tensors["changes"]), list(tensors["steps"])
    last = tensors["last_grad"].clone()  # the step writes the gradient there: a second one would find no difference
    made.state[p].update(
        n_iter=1, func_evals=1, d=tensors["direction"], t=RATE, old_dirs=changes, old_stps=steps,
        ro=[1 / (y @ s) for y, s in zip(changes, steps, strict=True)], H_diag=1, prev_loss=0.0, prev_flat_grad=last,
    )  # fmt: skip
    made.step(lambda: torch.zeros(()))
    state = made.state[p]
    outputs = {"parameter": p.detach(), "last_grad": state["prev_flat_grad"], "direction": state["d"]}
    return outputs | {"change": state["old_dirs"][-1], "step": state["old_stps"][-1]}


OPERATOR = Operator(
    forward=lbfgs,
    family="optimizer",
    tolerance=Tolerance(
        kind="normalisation",
        reduction="parameters",
        special="unspecified",
        steps_count=2,
    ),
    inputs=_inputs,
    valid=_valid,
    reference=lambda arrays, **arguments: _stored(arrays, lambda x, _: x, **arguments),
    stored=_stored,
    torch_call=_torch_call,
)
