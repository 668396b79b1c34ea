"""Calls of a GPU function on host tensors: inputs are copied to the GPU, results and stray writes back."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.case_tensors.memory_placement import copy_of
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.case_tensors.user_functions import takes_out
from nearpeak.measurement.machine.cuda_device import SPIN_CYCLES
from nearpeak.measurement.machine.torch_runner import Call, on_device

Tensors = Mapping[str, Any]


def from_host(call: Call) -> Call:
    """Return `call` on host tensors: inputs are copied to the GPU, and results and gradients back.

    It takes `out` where the call does, and has the attributes that validation uses: `concurrent`, the same call on a
    separate stream while the current one spins; `there`, the same call with results that stay on the GPU; and the
    call's own `backward` and `ledger`, where it has them.
    """
    moved = _with_out(call, _there_and_back)
    moved.there = _with_out(call, _there)  # type: ignore[attr-defined]  # read by validation
    moved.concurrent = _concurrent(moved)  # type: ignore[attr-defined]
    if hasattr(call, "ledger"):
        moved.ledger = call.ledger  # type: ignore[attr-defined]
    if (rule := getattr(call, "backward", None)) is not None:
        moved.backward = _with_out(rule, _there_and_back)  # type: ignore[attr-defined]
        moved.there.backward = _with_out(rule, _there)  # type: ignore[attr-defined]
    return moved


def _with_out(call: Call, how: Callable[[Call, Tensors, Tensors, Mapping[str, Any]], dict[str, Any]]) -> Call:
    """Return `call` wrapped by `how`, with a parameter `out` if it has one, as callers inspect the signature."""

    def returning(tensors: Tensors, **arguments: Any) -> dict[str, Any]:
        return how(call, tensors, {}, arguments)

    def writing(tensors: Tensors, out: Tensors, **arguments: Any) -> dict[str, Any]:
        return how(call, tensors, out, arguments)

    return writing if takes_out(call) else returning


def _there(call: Call, tensors: Tensors, out: Tensors, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return _called({name: _Beside(tensor) for name, tensor in tensors.items()}, call, out, arguments)[0]


def _there_and_back(call: Call, tensors: Tensors, out: Tensors, arguments: Mapping[str, Any]) -> dict[str, Any]:
    moved = {name: _Beside(mirror) for name, mirror in tensors.items()}
    outputs, written = _called(moved, call, out, arguments)
    results = {name: tensor.cpu() for name, tensor in outputs.items()}
    for mirror in (*moved.values(), *written.values()):
        mirror.bring_back()
    return results


def _called(
    moved: "Mapping[str, _Beside]", call: Call, out: Tensors, arguments: Mapping[str, Any]
) -> "tuple[dict[str, Any], dict[str, _Beside]]":
    """Return the results of a call on the GPU, and its preallocated outputs there."""
    run = call if moved else on_device(torch_or_refusal("a GPU"), "cuda", call)
    written = {name: _Beside(mirror) for name, mirror in out.items()}
    tensors = {name: mirror.tensor for name, mirror in written.items()}
    outputs = run(
        {name: mirror.tensor for name, mirror in moved.items()}, **arguments, **({"out": tensors} if tensors else {})
    )
    return tensors | dict(outputs or {}), written


def _concurrent(call: Call) -> Call:
    @functools.wraps(call, updated=())
    def beside(*args: Any, **named: Any) -> dict[str, Any]:
        torch = torch_or_refusal("a stream")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        if hasattr(torch.cuda, "_sleep"):
            torch.cuda._sleep(SPIN_CYCLES)
        with torch.cuda.stream(side):
            return call(*args, **named)

    return beside


class _Beside:
    """A copy of a host tensor's whole buffer on the GPU, guard bands included.

    Writes of a kernel into its inputs or out of bounds are copied back to the host, where they are detected. A tensor
    that requires gradients is only copied.
    """

    def __init__(self, tensor: Any) -> None:
        torch = torch_or_refusal("a GPU")
        self._host = self._there = None
        if tensor.requires_grad or tensor.is_cuda:
            self.tensor = copy_of(torch, tensor, "cuda")
            return
        self._host = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        self._there = torch.empty_like(self._host, device="cuda").copy_(self._host)
        empty = torch.empty(0, dtype=tensor.dtype, device="cuda")
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        self.tensor = empty.set_(self._there.untyped_storage(), *place)

    def bring_back(self) -> None:
        """Copy the buffer back to the host after the call."""
        if self._host is not None:
            self._host.copy_(self._there)
