"""Device and dtype moves of fake tensors and modules: everything stays on the CPU."""

from collections.abc import Callable
from typing import Any


def stand_ins() -> list[tuple[Any, str, Any]]:
    """Return what replaces PyTorch's own: owner, name and stand-in."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    move = torch.Tensor.to

    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return move(tensor, *map(on_cpu, args), **{key: on_cpu(value) for key, value in kwargs.items()})

    return [
        (torch.Tensor, "to", to),
        (torch.Tensor, "cuda", unmoved),
        (torch.Tensor, "pin_memory", unmoved),
        (torch.nn.Module, "cuda", unmoved),
        (torch.nn.Module, "_apply", _convert()),
        (torch.nn.Module, "compile", unmoved),
        (torch, "compile", _uncompiled),
        (torch, "tensor", _tensor_of(torch.tensor)),
        (FakeTensor, "numpy", _of_known(torch.Tensor.numpy)),
        (FakeTensor, "__format__", _of_known(torch.Tensor.__format__)),
    ]


def _of_known(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that runs on the real tensor where the values are known."""

    def method(tensor: Any, *args: Any, **options: Any) -> Any:
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        if tensor.constant is None:
            return original(tensor, *args, **options)
        with unset_fake_temporarily():
            return original(tensor.constant, *args, **options)

    return method


def _tensor_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.tensor` for nested lists that may contain fake one-element tensors, which are read first."""
    from torch._subclasses.fake_tensor import FakeTensor

    def plain(data: Any) -> Any:
        if isinstance(data, FakeTensor):
            return data.item() if data.dim() == 0 else data.tolist()
        return type(data)(map(plain, data)) if type(data) in (list, tuple) and _holds_fake(data) else data

    def _holds_fake(data: Any) -> bool:
        return any(isinstance(item, FakeTensor) or (type(item) in (list, tuple) and _holds_fake(item)) for item in data)

    def tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        nested = type(data) in (list, tuple)
        return original(plain(data) if nested else data, *args, **kwargs)

    return tensor


def unmoved(thing: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Return the argument unchanged."""
    return thing


def _uncompiled(model: Any = None, **_options: Any) -> Any:
    return model if model is not None else unmoved


def on_cpu(device: Any) -> Any:
    """Return the CPU for any device; other things unchanged."""
    import torch

    named = isinstance(device, (str, torch.device)) or (isinstance(device, int) and not isinstance(device, bool))
    return torch.device("cpu") if named else device


def _convert() -> Callable[..., Any]:
    """Return `Module._apply` without in-place swaps; tied parameters stay tied."""
    import torch
    from torch.nn.parameter import is_lazy

    done: dict[int, tuple[Any, Any]] = {}
    depth = [0]

    def converted(tensor: Any, function: Callable[[Any], Any]) -> Any:
        lazy: bool = is_lazy(tensor)
        if lazy:  # it has a format but no shape yet
            dtype, kind = function(torch.empty((), dtype=tensor.dtype)).dtype, tensor.__class__
            return tensor if dtype == tensor.dtype else kind(requires_grad=tensor.requires_grad, dtype=dtype)
        if id(tensor) not in done:
            with torch.no_grad():
                new = function(tensor)
            if new is not tensor and isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, tensor.requires_grad)
            done[id(tensor)] = (tensor, new)
        return done[id(tensor)][1]

    def apply(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        depth[0] += 1
        try:
            for child in module.children() if recurse else ():
                child._apply(function)
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    tensors[name] = None if tensor is None else converted(tensor, function)
        finally:
            depth[0] -= 1
            if depth[0] == 0:
                done.clear()
        return module

    return apply
