"""Operand formats of a product and the device unit that multiplies them."""

from collections.abc import Mapping
from dataclasses import replace

from nearpeak.core.work.dtype import DTYPES, DType
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError

_UNUSED = {("fp32", "tensor.fp64")}
"""Formats with units that would be exact enough, but that no library takes for them: NeuSight's tables name `sgemm`
kernels of vector units on the A100, whose matrix units for doubles are as fast.
"""


def unit_of(target: Target, dtypes: Mapping[str, str]) -> str:
    """Return the fastest unit that forms such products directly.

    Raises:
        NotModelledError: the target is no GPU, or states no rate for them.
    """
    a, b, _ = formats_of(dtypes)
    return fastest(target, a if a.bits_count >= b.bits_count else b)


def formats_of(dtypes: Mapping[str, str]) -> tuple[DType, DType, DType]:
    """Return the formats of A, B and the product."""
    dtype = DTYPES[dtypes["dtype"]]
    scheme = dtype.scheme
    if scheme is not None:
        return DTYPES[scheme.a.dtype], DTYPES[scheme.b.dtype], DTYPES[scheme.out]
    return dtype, DTYPES[dtypes.get("b_dtype", dtype.name)], DTYPES[dtypes.get("out_dtype", dtype.name)]


def fastest(target: Target, dtype: DType, what: str = "products") -> str:
    """Return the fastest unit that forms such products directly: libraries do not add up partial products.

    Args:
        what: whose prediction needs it, for the message.

    Raises:
        NotModelledError: the target is no GPU, or states no rate for them.
    """
    units = [unit for unit in units_of(target, dtype) if (dtype.name, unit) not in _UNUSED]
    if target.kind != "gpu" or not units:
        raise NotModelledError(
            f"{target.name}: no prediction of {what} of {dtype.name}; GPUs that state a rate for it only{got(target)}"
        )
    return max(units, key=lambda unit: target.peaks[unit].flop_per_s)


def units_of(target: Target, dtype: DType) -> list[str]:
    """Return the units of a target at whose rates such products are formed directly."""
    return [_widely_added(target, unit) for unit in dtype.matrix_units if unit in target.peaks]


def _widely_added(target: Target, unit: str) -> str:
    """Return the unit at whose rate libraries form products in fp16, which they add up in fp32.

    NVIDIA's consumer boards reach the stated rate of fp16 with sums in fp16 alone; with sums in fp32 fp16 is as fast as
    bf16 on all boards that have both (Ada GPU architecture whitepaper, appendix A).
    """
    wide = "tensor.bf16"
    slower = wide in target.peaks and target.peaks[wide].flop_per_s < target.peaks[unit].flop_per_s
    return wide if unit == "tensor.fp16" and slower and target.vendor == "NVIDIA" else unit


def with_rounding(target: Target, policy: str) -> Target:
    """Return the target as kernels see it that may round fp32 products to TF32; the same one where they may not.

    Args:
        policy: `strict`, `tf32` or `hard`, as bounds take it.

    >>> from nearpeak.core.work.dtype import DTYPES
    >>> from nearpeak.targets import target_of
    >>> fastest(with_rounding(target_of("jetson_orin_nano"), "tf32"), DTYPES["fp32"])
    'tensor.fp32'
    """
    if policy == "strict" or "tensor.tf32" not in target.peaks or "tensor.fp32" in target.peaks:
        return target
    return replace(target, peaks={**target.peaks, "tensor.fp32": target.peaks["tensor.tf32"]})


def got(target: Target) -> str:
    """Return a note on the kind of a target that is not a GPU; empty for a GPU."""
    return "" if target.kind == "gpu" else f", got one of kind {target.kind}: it has bounds, no predictions"


def figures_of(target: Target, unit: str) -> tuple[float, ...]:
    """Return the device figures of every kernel: rate, multiprocessors, memory rate, cache, clock.

    Raises:
        NotModelledError: the target does not state its memory rate or its last cache.
    """
    rate, capacity = target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes
    if rate is None or capacity is None:
        raise NotModelledError(f"{target.name}: predict needs the memory bandwidth and the capacity of its last cache")
    peak = target.peaks[unit]
    return peak.flop_per_s, target.sm_count, rate, capacity, peak.clock_hz
