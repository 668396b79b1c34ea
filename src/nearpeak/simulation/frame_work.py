"""Graphics workload beside compute: rendered frames whose pixel shading occupies thread blocks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.kernel_lowering import filling, ps

TILE = 256
"""Pixels that one block shades: 8 warps."""
_LAUNCH_S = 2e-6
"""From a draw call on the device to its first pixels. Assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is drawn of a frame: pixels, and what each costs. Fixed-function units are not modelled."""

    pixels_count: int
    """Pixels that are shaded, overdraw included."""
    flop_count: float
    """FLOP on vector units for each pixel."""
    bytes_per_pixel_count: float
    """Bytes that each pixel moves through memory: textures that miss, depth, colour."""
    passes_count: int = 1
    """Sequential draws among which pixels are divided."""

    def __post_init__(self) -> None:
        """Refuse a frame of nothing."""
        if min(self.pixels_count, self.passes_count) < 1 or min(self.flop_count, self.bytes_per_pixel_count) < 0:
            raise SpecError("frame: has at least a pixel and a pass, and no negative FLOP or bytes")
        if not self.flop_count + self.bytes_per_pixel_count > 0:
            raise SpecError("frame: pixels without FLOP and bytes take no time; give one of them")


def frame_kernels(frame: Frame, target: Target) -> Iterator[Kernel]:
    """Yield the draws of a frame.

    >>> from nearpeak.targets import target_of
    >>> frame = Frame(pixels_count=1920 * 1080, flop_count=1000, bytes_per_pixel_count=16)
    >>> next(frame_kernels(frame, target_of("h100_sxm"))).cta_count
    8100
    """
    blocks = math.ceil(frame.pixels_count / frame.passes_count / TILE)
    rate = vector_rate(target, "fp32")[1] / target.sm_count
    moved = TILE * frame.bytes_per_pixel_count
    for place in range(frame.passes_count):
        yield Kernel(
            name=f"draw {place}", cta_count=blocks, needs=filling(target, 8),
            phases=(
                Phase(fixed_ps=ps(_LAUNCH_S) if place == 0 else 1),
                Phase(pipe_s={"vector": TILE * frame.flop_count / rate}, pool_bytes={"dram": moved, "l2": moved}),
            ),
        )  # fmt: skip
