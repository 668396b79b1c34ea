"""Lists of one-element tensors as indices: PyTorch reads their memory to make one tensor, which fake ones lack."""

from collections.abc import Callable
from typing import Any


def stand_ins() -> list[tuple[Any, str, Any]]:
    """Return what replaces PyTorch's own: owner, name and stand-in."""
    import torch

    names = ("__getitem__", "__setitem__")
    return [(torch.Tensor, name, _stacking(getattr(torch.Tensor, name))) for name in names]


def _stacking(original: Callable[..., Any]) -> Callable[..., Any]:
    def index(tensor: Any, where: Any, *value: Any) -> Any:
        if type(where) is tuple and any(type(one) in (list, tuple) for one in where):
            where = tuple(_stacked(one) for one in where)
        return original(tensor, where, *value)

    return index


def _stacked(one: Any) -> Any:
    import torch

    whole = (
        type(one) in (list, tuple) and one and all(isinstance(item, torch.Tensor) and not item.dim() for item in one)
    )
    return torch.stack(list(one)) if whole else one
