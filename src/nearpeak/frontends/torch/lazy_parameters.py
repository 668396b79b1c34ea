"""Lazy parameters on fake tensors: their shapes follow from the first input."""

from collections.abc import Callable
from typing import Any


def stand_ins() -> list[tuple[Any, str, Any]]:
    """Return what replaces PyTorch's own: owner, name and stand-in."""
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    return [(lazy, "__new__", _outside(lazy.__new__)) for lazy in (UninitializedParameter, UninitializedBuffer)]


def _outside(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `original` run without fake tensors, whose class no lazy tensor can take."""

    def made(*arguments: Any, **options: Any) -> Any:
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            return original(*arguments, **options)

    return made


def prepare(model: Any) -> bool:
    """Make the model ready for a first run, which gives lazy tensors their shapes; say whether it has any."""
    from torch.nn.parameter import is_lazy

    has_lazy = False
    for module in model.modules() if hasattr(model, "modules") else ():
        for tensors in (module._parameters, module._buffers):
            for name in [name for name, tensor in tensors.items() if is_lazy(tensor)]:
                module.__dict__[name] = _Slot(module, tensors, name)
                has_lazy = True
    return has_lazy


class _Slot:
    """Stands where a lazy parameter or buffer stood, until the module says which shape it has."""

    def __init__(self, module: Any, tensors: dict[str, Any], name: str) -> None:
        self._module, self._tensors, self._name = module, tensors, name

    @property  # type: ignore[misc]  # an object's class can be written, this one cannot
    def __class__(self) -> Any:
        """The class of what it stands for, which modules assert."""
        return type(self._tensors[self._name])

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Put a tensor of that shape into the module; PyTorch's own changes a tensor's class, which fakes forbid."""
        import torch

        lazy = self._tensors[self._name]
        made = torch.empty(shape, device=device, dtype=dtype or lazy.dtype)
        is_parameter = self._tensors is self._module._parameters
        self._tensors[self._name] = torch.nn.Parameter(made, lazy.requires_grad) if is_parameter else made
        del self._module.__dict__[self._name]
