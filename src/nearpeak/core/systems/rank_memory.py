"""Memory of one rank of a training job: its parts at the peak, where the peak is, and whether it fits."""

from collections.abc import Mapping
from dataclasses import dataclass

MEMORY_KINDS = (
    "weights", "gradients", "optimizer", "activations", "transient", "gathers", "buckets", "logits", "communication",
    "workspace",
)  # fmt: skip
"""Parts that the framework allocates: `activations` wait for their backward pass, `transient` lives inside one layer,
`gathers` are parameters gathered from shards, `buckets` hold gradients on their way, `logits` the output
head's, `workspace` what libraries hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of one rank.

    >>> memory = RankMemory(stage=0, place="loss", parts={"weights": 60, "logits": 20}, reserved_bytes=90,
    ...                     context_bytes=5, device_bytes=100)
    >>> memory.allocated_bytes, memory.fits, memory.free_bytes
    (80, True, 5)
    """

    stage: int
    """Pipeline stage."""
    place: str
    """Where in the step the peak is, `forward of layer 3`."""
    parts: Mapping[str, int]
    """Bytes of each of MEMORY_KINDS at the peak."""
    reserved_bytes: int
    """What the framework's allocator holds from the device at its peak."""
    context_bytes: int
    """Driver context, libraries and communicators, outside the framework's allocator."""
    device_bytes: int | None
    """Memory of the device; none where it is not stated."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of tensors at the peak."""
        return sum(self.parts.values())

    @property
    def used_bytes(self) -> int:
        """Bytes that the device has given out at the peak."""
        return self.reserved_bytes + self.context_bytes

    @property
    def free_bytes(self) -> int | None:
        """Bytes left at the peak, negative where it does not fit; none where the device's memory is not stated."""
        return None if self.device_bytes is None else self.device_bytes - self.used_bytes

    @property
    def fits(self) -> bool:
        """Whether the rank fits on its device; true where the device's memory is not stated."""
        return self.free_bytes is None or self.free_bytes >= 0
