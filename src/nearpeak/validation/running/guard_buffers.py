"""Tensors inside larger buffers whose guard bands and gaps hold a pattern, to detect stray writes."""

from dataclasses import dataclass
from typing import Any

from nearpeak.case_tensors.memory_placement import GAP, dense
from nearpeak.errors import MissingExtraError
from nearpeak.ops import span_of
from nearpeak.validation.oracle.format_limits import format_name, poison_value

GUARD_BYTES = 64
"""Guard band before and after each tensor."""


def imported_torch() -> Any:
    """Return PyTorch, which has the number formats that NumPy lacks."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("validating needs PyTorch; install nearpeak[torch]") from None
    return torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A guarded tensor with the strides and offset of another one."""

    like: Any
    """A tensor of its shape, format, strides and offset."""
    buffer: Any
    """All bytes, guard bands included."""
    start_bytes: int
    """First byte of the tensor in the buffer."""
    stop_bytes: int
    """First byte after it."""
    element_mask: Any
    """Which bytes between them belong to elements; none where all do."""
    before: Any
    """The bytes before the call."""

    @staticmethod
    def holding(tensor: Any, shift_bytes: int) -> "Guarded":
        """Return a guarded copy of `tensor`: dense from an aligned address, unless it is strided or offset itself."""
        torch = imported_torch()
        size, lies = tensor.element_size(), not dense(tensor)
        strides = tuple(tensor.stride())
        start = GUARD_BYTES + shift_bytes + (tensor.storage_offset() * size if lies else 0)
        length = (span_of(tuple(tensor.shape), strides) if lies else tensor.numel()) * size
        element_mask = None
        if lies and length > tensor.numel() * size:
            element_mask = torch.zeros(length // size, dtype=torch.bool)
            element_mask.as_strided(tensor.shape, strides, 0).fill_(True)
            element_mask = element_mask.repeat_interleave(size)
        buffer = torch.full((start + length + GUARD_BYTES,), GAP, dtype=torch.uint8)
        guarded = Guarded(
            like=tensor,
            buffer=buffer,
            start_bytes=start,
            stop_bytes=start + length,
            element_mask=element_mask,
            before=buffer.clone(),
        )
        guarded.refill(tensor)
        return guarded

    @staticmethod
    def poisoned(like: Any, poison: str, shift_bytes: int) -> "Guarded":
        """Return a guarded tensor of the shape and format of `like` that holds poison."""
        torch = imported_torch()
        value = poison_value(format_name(like.dtype), poison)
        return Guarded.holding(torch.full(like.shape, value, dtype=torch.float64).to(like.dtype), shift_bytes)

    @property
    def view(self) -> Any:
        """The tensor, as a new object at the same address each time: a call may set its `requires_grad`."""
        elements = self.buffer[self.start_bytes : self.stop_bytes].view(self.like.dtype)
        if dense(self.like):
            return elements.view(self.like.shape)
        return elements.as_strided(self.like.shape, tuple(self.like.stride()), elements.storage_offset())

    def refill(self, tensor: Any) -> None:
        """Write other values to the same address."""
        self.view.copy_(tensor)
        self.before.copy_(self.buffer)

    def changed(self) -> bool:
        """Whether bytes of the tensor's elements have changed."""
        span = slice(self.start_bytes, self.stop_bytes)
        same = self.buffer[span] == self.before[span]
        return not bool((same if self.element_mask is None else same[self.element_mask]).all())

    def overrun(self) -> bool:
        """Whether a guard band, or a gap between elements, was written to."""
        around = [self.buffer[: self.start_bytes], self.buffer[self.stop_bytes :]]
        if self.element_mask is not None:
            around.append(self.buffer[self.start_bytes : self.stop_bytes][~self.element_mask])
        return any(bool((part != GAP).any()) for part in around)

    def holds(self, tensor: Any) -> bool:
        """Whether `tensor` begins in the memory of this one."""
        if not tensor.numel() or tensor.device != self.buffer.device or tensor.layout != self.buffer.layout:
            return False
        return bool(self.start_bytes <= tensor.data_ptr() - self.buffer.data_ptr() < self.stop_bytes)
