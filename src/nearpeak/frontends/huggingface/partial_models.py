"""Models without a forward pass of their own: their runnable sub-models, each with separate inputs."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from nearpeak.errors import NotModelledError

_METHODS = ("encode", "decode")
"""Methods that run a model without a forward pass and without runnable parts."""


def runnable_parts(name: str, model: Any) -> tuple[Any, Mapping[str, tuple[Any, str]]]:
    """Return a runnable module, and the model's parts by path, each with the name of the method that runs it.

    A model with a forward pass is its only part, at the empty path. Otherwise the outermost parts with a forward pass
    run in sequence, as the code between them generates token by token; without such a part the model's encoding
    method is called.

    Raises:
        NotModelledError: nothing of the model runs on tensors alone.
    """
    if _runs(model):
        return model, {"": (model, "forward")}
    parts = {path: (part, "forward") for path, part in _outermost(model)}
    if not parts:
        parts = {
            method: (model, method)
            for method in [method_name for method_name in _METHODS if hasattr(model, method_name)][:1]
        }
    if not parts:
        raise NotModelledError(f"hf:{name}: {type(model).__name__} has no forward pass of its own, and no part has one")
    return _in_turn(model, parts), parts


def parameters_of(parts: Mapping[str, tuple[Any, str]]) -> frozenset[str]:
    """Return the parameters that the parts take together."""
    return frozenset(
        name for part, method in parts.values() for name in inspect.signature(getattr(type(part), method)).parameters
    )


def _runs(model: Any) -> bool:
    import torch

    return getattr(type(model), "forward", None) not in (None, torch.nn.Module.forward)


def _outermost(model: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts that transformers would build on their own, outermost first."""
    for name, child in model.named_children():
        here = f"{path}.{name}".lstrip(".")
        if hasattr(child, "config") and hasattr(child, "main_input_name") and _runs(child):
            yield here, child
        else:
            yield from _outermost(child, here)


def _in_turn(model: Any, parts: Mapping[str, tuple[Any, str]]) -> Any:
    """Return a module that runs each part once; its inputs are named `<path>:<parameter>`."""
    import torch

    class InTurn(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.whole = model

        def forward(self, **inputs: Any) -> dict[str, Any]:
            outputs = {}
            for path, (part, method) in parts.items():
                part_inputs = {key.split(":")[1]: value for key, value in inputs.items() if key.split(":")[0] == path}
                outputs[path] = (part if method == "forward" else getattr(part, method))(**part_inputs)
            return outputs

    return InTurn()
