"""Kernels of an engine as columns: product extents, bytes and formats, which no board changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import work_of
from nearpeak.ops.shared.window_taps import AXES

PLAIN, DEPTHWISE, GROUPED, OTHER = range(4)
"""Kinds of kernel: plain products, convolutions with one and with several channels per group, all others."""
_CHANNELS = {8: 32, 16: 8, 32: 4}
"""Channels that lie side by side in memory by bits of a format. Source: TensorRT developer guide, 'Data Format
Descriptions': NC/32HW32 in 8 bits, NHWC8 in 16; four floats of 16 bytes."""
_FEW = 4
"""Input channels for which engines have kernels of their own."""


class KernelRow(NamedTuple):
    """One kernel."""

    kind: int
    """One of the kinds above."""
    bits: int
    """Bits of its format: 8, 16 or 32."""
    m: float
    """Rows of the product: outputs of one channel."""
    n: float
    """Output channels of a group."""
    k: float
    """Input channels of a group, as they lie in memory."""
    taps: float
    """Taps of a window."""
    groups: float
    """Groups, or products of a batch."""
    flop: float
    """FLOP of products, without padding."""
    moved_bytes: float
    """Bytes read and written, channels as they lie in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKernels:
    """All kernels of a step, a column for each figure of a row, and how often each runs."""

    columns: Mapping[str, Any]
    """Arrays by name of `KernelRow`."""
    counts: Any
    """Runs of each kernel."""

    @property
    def kernel_count(self) -> int:
        """Runs of all kernels."""
        return int(self.counts.sum())


def engine_kernels(counts: Mapping[Case, int]) -> EngineKernels:
    """Return the kernels of cases that run so often.

    >>> from nearpeak.ops import case
    >>> engine_kernels({case("gemm", m=8, n=8, k=8, dtype="fp16"): 2}).kernel_count
    2
    """
    rows: Sequence[KernelRow] = [_row(case) for case in counts]
    columns = {name: np.array([getattr(row, name) for row in rows], dtype=float) for name in KernelRow._fields}
    return EngineKernels(columns=columns, counts=np.array(list(counts.values()), dtype=float))


@lru_cache(maxsize=4096)
def _row(case: Case) -> KernelRow:
    formats, axes, work = dict(case.dtypes), dict(case.axes), work_of(case)
    bits = max(8, min(32, dtype_of(formats.get("dtype", "fp16")).bits_count))
    flop = float(sum(amount for unit, amount in work.flop.items() if unit.startswith("matrix.")))
    moved = float(work.read_bytes + work.write_bytes)
    bits = bits if bits in _CHANNELS else 16
    if case.op == "conv":
        return _convolution(axes, bits, flop, moved)
    if case.op == "gemm":
        k = _aligned(axes["k"], bits)
        return KernelRow(PLAIN, bits, axes["m"], axes["n"], k, 1, axes["batch"], flop, moved)
    return KernelRow(OTHER, bits, 0, 0, 0, 0, 1, flop, moved)


def _convolution(axes: Mapping[str, int], bits: int, flop: float, moved: float) -> KernelRow:
    outputs, inputs, taps = float(axes["batch"]), float(axes["batch"]), 1.0
    for name in AXES:
        reach = axes[name] + axes[f"p{name}"] + axes[f"p{name}_end"] - axes[f"d{name}"] * (axes[f"k{name}"] - 1) - 1
        outputs *= reach // axes[f"s{name}"] + 1
        inputs *= axes[name]
        taps *= axes[f"k{name}"]
    groups, size = axes["groups"], bits / 8
    n, k = axes["out_channels"] // groups, axes["in_channels"] // groups
    if groups > 1 and k == 1:
        return KernelRow(DEPTHWISE, bits, outputs, n, k, taps, groups, flop, moved)
    if groups > 1:  # as many groups as fill the channels that lie side by side run as one product
        joined = max(1, min(groups, _CHANNELS[bits] // k))
        return KernelRow(GROUPED, bits, outputs, n * joined, k * joined, taps, groups / joined, flop, moved)
    wide, high = _aligned(k, bits), _aligned(n, bits)
    padded = moved + size * (inputs * (wide - k) + outputs * (high - n))
    return KernelRow(PLAIN, bits, outputs, n, wide, taps, 1, flop, padded)


def _aligned(channels: int, bits: int) -> int:
    step = _FEW if channels <= _FEW else _CHANNELS[bits]
    return -(-channels // step) * step
