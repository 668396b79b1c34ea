"""Mutants of the gradient: a right result whose upstream gradient is zeroed, scaled or reordered."""

from collections.abc import Callable, Iterator
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.validation.mutants.mutant import Mutant, Tensors, right_call
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.oracle.gradient_oracle import without_gradient
from nearpeak.validation.running.implementation_run import Call


def of_gradients(case: Case) -> Iterator[Mutant]:
    """Yield the mutants that misuse the upstream gradient, where the case has a gradient."""
    draw = draw_inputs(case, 0, "normal")
    if draw is None or without_gradient(case, draw):
        return
    changes: dict[str, Callable[[Any], Any]] = {
        "gradient zero": lambda grad: grad * 0,
        "gradient by the wrong count": lambda grad: grad * 0.75,
        "upstream taken as uniform": _uniform,
        "only the first upstream element used": lambda grad: grad.reshape(-1)[:1].expand(grad.numel()).view(grad.shape),
        "upstream reversed": lambda grad: grad.flip(tuple(range(grad.dim()))),
    }
    for row, change in changes.items():
        moves = change if row in _MOVES else None
        yield Mutant(row=row, where="", make=_maker(case, change), of_gradient=True, moves=moves)


_MOVES = ("only the first upstream element used", "upstream reversed")


def _uniform(grad: Any) -> Any:
    import torch

    return torch.ones_like(grad)


def _maker(case: Case, change: Callable[[Any], Any]) -> Callable[[], Call]:
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        outputs = dict(right(tensors, **arguments))
        for name, y in outputs.items():
            if y.requires_grad:
                y.register_hook(change)
                outputs[name] = y.clone()
        return outputs

    return lambda: call
