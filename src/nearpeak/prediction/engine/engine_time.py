"""Time of an engine's kernels on a board: tiles on multiprocessors, memory traffic, starts of kernels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.engine.engine_coefficients import EngineCoefficients, engine_calibration
from nearpeak.prediction.engine.engine_kernels import DEPTHWISE, GROUPED, OTHER, EngineKernels

_TILES = ((256, 128), (256, 64), (128, 128), (128, 64), (128, 32), (64, 64), (64, 32))
_UNITS = {
    8: ("tensor.int8", "tensor.fp16", "vector.fp16", "vector.fp32"), 16: ("tensor.fp16", "vector.fp16", "vector.fp32"),
    32: ("tensor.tf32", "vector.fp32"),
}  # fmt: skip
"""Units that form products in formats of so many bits, best first; engines let fp32 products round to TF32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """Parts of the times of kernels, as columns."""

    products_s: Any
    """Products alone."""
    memory_s: Any
    """What memory adds to products."""
    start_s: float
    """From one kernel to the next."""

    @property
    def total_s(self) -> Any:
        """Times of the kernels."""
        return self.products_s + self.memory_s + self.start_s


def kernel_times(
    kernels: EngineKernels, target: Target, coefficients: EngineCoefficients, *, is_graph: bool = True
) -> KernelTimes:
    """Return the times of kernels on a board.

    A product takes the tile that is fastest on the multiprocessors, its last wave whole; products and memory overlap
    as the root of the sum of squares.

    Args:
        is_graph: whether all kernels are submitted as one graph, not one by one.

    Raises:
        NotModelledError: the target states no rate for the products or no memory rate.
    """
    bandwidth = target.dram.bandwidth_bytes_per_s
    if bandwidth is None or not target.clock_hz:
        raise NotModelledError(f"{target.name}: no time of an engine; it states no memory rate or no clock")
    columns = kernels.columns
    kind, bits = columns["kind"], columns["bits"]
    rates = {width: _rate(target, _UNITS[width]) for width in {int(width) for width in bits}}
    shares = {8: coefficients.int8_ratio, 16: coefficients.fp16_ratio, 32: coefficients.fp32_ratio}
    rate = np.select([bits == width for width in rates], list(rates.values()), 1.0)
    share = np.select([bits == width for width in shares], list(shares.values()), 1.0)
    depth = columns["k"] * columns["taps"] + coefficients.depth_count * 32 / bits
    tiled_s = np.full(len(bits), np.inf)
    for high, wide in _TILES:
        tiles = np.ceil(columns["m"] / high) * np.ceil(columns["n"] / wide) * columns["groups"]
        slots = np.maximum(np.ceil(tiles / target.sm_count), 1.0) * target.sm_count
        area = high * wide + coefficients.edge_count * (high + wide)
        tiled_s = np.minimum(tiled_s, slots * 2 * area * depth / (rate * share))
    tiled_s = np.where(kind == GROUPED, tiled_s / coefficients.grouped_ratio, tiled_s)
    vector = _rate(target, ("vector.fp32",))
    products_s = np.select(
        [kind == DEPTHWISE, kind == OTHER],
        [columns["flop"] / (coefficients.depthwise_ratio * vector), 2 * columns["flop"] / (rate * share)],
        tiled_s,
    )
    memory_s = columns["moved_bytes"] / (coefficients.dram_ratio * bandwidth)
    start_s = coefficients.start_clock_count / target.clock_hz + (0.0 if is_graph else coefficients.submit_s)
    together_s = np.sqrt(products_s**2 + memory_s**2)
    return KernelTimes(products_s=products_s, memory_s=together_s - products_s, start_s=start_s)


def engine_time_s(
    kernels: EngineKernels, target: Target, coefficients: EngineCoefficients | None = None, *, is_graph: bool = True
) -> float:
    """Return the time of all kernels of a step on a board, one after the other.

    >>> from nearpeak.ops import case
    >>> from nearpeak.prediction.engine.engine_kernels import engine_kernels
    >>> from nearpeak.targets import target_of
    >>> step = engine_kernels({case("gemm", m=512, n=512, k=512, dtype="int8"): 3})
    >>> slow, fast = (engine_time_s(step, target_of(f"jetson_orin_nano:{mode}")) for mode in ("7W", "25W"))
    >>> slow > fast
    True
    """
    used = coefficients or engine_calibration().coefficients
    return float((kernel_times(kernels, target, used, is_graph=is_graph).total_s * kernels.counts).sum())


def _rate(target: Target, units: tuple[str, ...]) -> float:
    """Return the rate of the first unit that a board states, at its clock."""
    for unit in units:
        if unit in target.peaks:
            return target.peaks[unit].flop_per_clock * target.sm_count * target.clock_hz
    raise NotModelledError(f"{target.name}: no time of an engine; it states no rate of {' or '.join(units)}")
