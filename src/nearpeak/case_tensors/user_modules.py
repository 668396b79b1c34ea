"""Adapter that calls a `torch.nn.Module` on the named inputs of a case."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_inputs(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a PyTorch module as a function of (inputs by name, **arguments); other callables are returned unchanged.

    Inputs with the name of a parameter or buffer replace it. The others are passed by name if `forward` has all their
    names, else in order. A `forward` that takes `**` is called like any function.

    >>> on_inputs(len) is len
    True
    """
    torch: Any = sys.modules.get("torch")
    if (
        torch is None
        or not isinstance(call, torch.nn.Module)
        or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(call.forward).parameters.values()
        )
    ):
        return call
    return _by_its_forward(call)


def _by_its_forward(module: Any) -> Callable[..., Any]:
    takes = inspect.signature(module.forward).parameters

    def run(inputs: Mapping[str, Any], **arguments: Any) -> Any:
        held = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
        weights = {name: tensor for name, tensor in inputs.items() if name in held}
        others = {name: tensor for name, tensor in inputs.items() if name not in held}
        named = others if others.keys() <= takes.keys() else {}
        options = {name: value for name, value in arguments.items() if name in takes}
        args, kwargs = () if named else tuple(others.values()), named | options
        try:
            inspect.signature(module.forward).bind(*args, **kwargs)
        except TypeError as error:
            left = ", ".join(others) or "none"
            raise TypeError(f"{type(module).__name__}.forward does not take the inputs {left}: {error}") from None
        import torch

        return torch.func.functional_call(module, weights, args, kwargs)

    return run
