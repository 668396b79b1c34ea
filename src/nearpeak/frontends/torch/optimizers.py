"""Optimizers of captured training steps: PyTorch's by name, or any object with a `step()` method."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.errors import SpecError

Made = Callable[[list[Any]], Any]
"""Makes an optimizer for a list of parameters."""

_CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "adamw": ("AdamW", {"lr": 1e-3}),
    "sgd": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-3}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "adadelta": ("Adadelta", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adamax": ("Adamax", {}),
    "asgd": ("ASGD", {}),
    "rprop": ("Rprop", {}),
    "adafactor": ("Adafactor", {}),
    "muon": ("Muon", {}),
}
"""Class below torch.optim, with the options that are not its defaults."""

OPTIMIZERS = (*_CLASSES, "none")
"""Names of all optimizers."""


def optimizer_named(name: str | Made, *, fused: bool) -> Made | None:
    """Return the function that makes the optimizer `name` for a list of parameters; none for `none`.

    Args:
        name: one of OPTIMIZERS, or the function itself.
        fused: one kernel for all parameters, where PyTorch has one; else one kernel per list of tensors and operation.
    """
    if not isinstance(name, str):
        return name
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    if name == "none":
        return None
    if name == "muon":
        return lambda parameters: _Muon(parameters, fused=fused)
    return lambda parameters: _made(name, parameters, fused=fused)


def _made(name: str, parameters: list[Any], *, fused: bool) -> Any:
    import torch

    class_name, options = _CLASSES[name]
    if not hasattr(torch.optim, class_name):
        raise SpecError(f"optimizer {name!r}: PyTorch {torch.__version__} has none; {class_name} came later")
    class_ = getattr(torch.optim, class_name)
    known = inspect.signature(class_).parameters
    # Unfused means one kernel per list of tensors, which is what GPUs run by default; complex ones have no other.
    whole = fused and "fused" in known and all(parameter.is_floating_point() for parameter in parameters)
    how = {"fused": True} if whole else {"foreach": True} if "foreach" in known else {}
    return class_(parameters, **options, **how)


class _Muon:
    """Muon on matrices and AdamW on what it does not take: vectors and tensors of higher rank."""

    def __init__(self, parameters: list[Any], *, fused: bool) -> None:
        matrices = [parameter for parameter in parameters if parameter.dim() == 2]
        others = [parameter for parameter in parameters if parameter.dim() != 2]
        self._parts = [_made(name, part, fused=fused) for name, part in (("muon", matrices), ("adamw", others)) if part]

    @property
    def state(self) -> dict[Any, Any]:
        """States by parameter."""
        return {parameter: state for part in self._parts for parameter, state in part.state.items()}

    def step(self) -> None:
        """Update all parameters."""
        for part in self._parts:
            part.step()
