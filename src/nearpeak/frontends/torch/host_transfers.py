"""Host-device copies on fake tensors, recorded although every fake device is the CPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_MARK = "_nearpeak_on_host"


@contextmanager
def transfers_kept() -> Iterator[None]:
    """Record explicit copies while the block runs: `.cpu()` and `.to("cpu")`, and moves of their results back.

    The model is assumed to be on one device. `x.to(y.device)` is no copy, as all fake tensors report the CPU.
    """
    import torch

    operator()
    before = torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda
    to, _cpu, cuda = before
    torch.Tensor.to, torch.Tensor.cpu = _moved(to), _fetched
    torch.Tensor.cuda = lambda tensor, *args, **kwargs: cuda(_back(tensor), *args, **kwargs)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda = before


@cache
def operator() -> Any:
    """Return the library that defines the copy."""
    import torch

    library = torch.library.Library("nearpeak", "FRAGMENT")
    library.define("transfer(Tensor input, str direction) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.register_fake("nearpeak::transfer", lambda x, _: x.new_empty(x.shape), lib=library)
    return library


@cache
def _transfer() -> Any:
    """Return the differentiable copy: gradients go the other way."""
    import torch

    ops, back = torch.ops.nearpeak, {"h2d": "d2h", "d2h": "h2d"}

    class Transfer(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(ctx: Any, x: Any, direction: str) -> Any:
            ctx.direction = direction
            return ops.transfer(x, direction)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return ops.transfer(grad, back[ctx.direction]), None

    return Transfer.apply


def _fetched(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Return the tensor on the host; tensors with known values, or already there, are returned unchanged."""
    if getattr(tensor, _MARK, False) or not hasattr(tensor, "fake_mode") or tensor.constant is not None:
        return tensor
    copy = _transfer()(tensor, "d2h")
    setattr(copy, _MARK, True)
    return copy


def _back(tensor: Any) -> Any:
    return _transfer()(tensor, "h2d") if getattr(tensor, _MARK, False) else tensor


def _moved(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        place = kwargs.get("device", args[0] if args else None)
        named = isinstance(place, str)
        if named and place == "cpu":
            tensor = _fetched(tensor)
        elif named or getattr(place, "type", "cpu") != "cpu":
            tensor = _back(tensor)
        return original(tensor, *args, **kwargs)

    return to
