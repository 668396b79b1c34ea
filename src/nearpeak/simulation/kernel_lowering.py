"""Interface of lowerings, and the device figures and fitted rates that they read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.simulation.engine.device_work import Node
from nearpeak.simulation.machine import Limits
from nearpeak.simulation.machine_from_target import limits_of, memory_rates
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.targets import TARGETS, target_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """How cases of some operators become kernels."""

    ops: tuple[str, ...]
    """Operators; none for all that no other file names."""
    kernels: Callable[[Case, Target, Setting], tuple[Node, ...]]
    """Rule: case, target and how the kernels run, to kernels and copies that follow one another."""
    phases: tuple[str, ...] = ("forward",)
    """Phases of the operators that it knows; others stream through memory."""
    filling_ratios: tuple[float, ...] = ()
    """Shares of the multiprocessors with a block from which on a figure of its rates is reached in full; none where
    idle ones cost nothing."""


def ceilings(case: Case, target: Target, family: str) -> Mapping[str, float]:
    """Return the measured rates of a device for a family: coefficients by name.

    They say what share of a rate kernels reach and what starting costs, never how long a kernel takes.
    """
    measured = _measured(case, target, family)
    stock = _stock(target)
    if stock is None or not measured.get("clock_ratio"):
        return measured
    return measured | _raised(measured, case, target, stock, family)


def wider_counts(target: Target) -> tuple[float, ...]:
    """Return numbers of multiprocessors from those of the device that exists up to an edited one's, 2 in each doubling.

    >>> from nearpeak.targets import target_of
    >>> wider_counts(target_of("h100_sxm")), len(wider_counts(target_of("h100_sxm", ["sm_count=264"])))
    ((), 2)
    """
    stock = _stock(target)
    return () if stock is None else _steps(stock.sm_count, target.sm_count)[:-1][::4]


def fewer_counts(target: Target) -> tuple[int, ...]:
    """Return half and a quarter of the multiprocessors of the device that exists: what few blocks may do better with.

    They are the same for all edits of a device, so that more multiprocessors take none of them away.

    >>> from nearpeak.targets import target_of
    >>> fewer_counts(target_of("h100_sxm")), fewer_counts(target_of("h100_sxm", ["sm_count=264"]))
    ((66, 33), (66, 33))
    """
    whole = (_stock(target) or target).sm_count
    return whole // 2, whole // 4


def _stock(target: Target) -> Target | None:
    """Return the device that an edited one was made of; none for one that is as its file states."""
    stem = target.name.partition("+")[0]
    return None if stem == target.name or stem.partition(":")[0] not in TARGETS else target_of(stem)


def _measured(case: Case, target: Target, family: str) -> dict[str, float]:
    calibration = calibration_for(target, KERNEL_MODELS[family], case_columns(case))
    return {coefficient.name: coefficient.value for coefficient in calibration.coefficients}


def _raised(measured: Mapping[str, float], case: Case, target: Target, stock: Target, family: str) -> dict[str, float]:
    """Return the rates of products of an edited device, at least those of ones between it and the device that exists.

    Sustained rates follow from the board's power. Existing boards draw more at rest by multiprocessor and more by
    product the higher their top clock is, so that a wider or faster device under the same limit would be slower; but it
    may run at a lower clock, and leave multiprocessors without power.
    """
    fastest = measured["tensor_ratio"]
    slowed_ratio = (1.0 + measured["clock_ratio"]) / measured["tensor_ratio"]
    for sm_count in _steps(stock.sm_count, target.sm_count):
        for clock_hz in _steps(stock.clock_hz, target.clock_hz):
            less = reduced(target, round(sm_count), clock_hz)
            rates = _measured(case, less, family)
            share = less.sm_count * less.clock_hz / (target.sm_count * target.clock_hz)
            fastest = max(fastest, rates["tensor_ratio"] * share)
            slowed_ratio = min(slowed_ratio, (1.0 + rates["clock_ratio"]) / (rates["tensor_ratio"] * share))
    return {"tensor_ratio": fastest, "clock_ratio": max(0.0, slowed_ratio * fastest - 1.0)}


def _steps(low: float, high: float) -> tuple[float, ...]:
    """Return values from one figure to another, 8 in each doubling; the second alone where it is not above.

    >>> [round(step) for step in _steps(100, 125)], _steps(100, 50)
    ([100, 109, 119, 125], (50,))
    """
    if high <= low:
        return (high,)
    return (*(low * 2 ** (step / 8) for step in range(math.ceil(8 * math.log2(high / low)))), high)


def ps(time_s: float) -> int:
    """Return seconds as whole picoseconds, rounded up.

    >>> ps(1e-6)
    1000000

    Raises:
        NotModelledError: it is no number, as of a case without anything to do.
    """
    if not math.isfinite(time_s):
        raise NotModelledError("simulate: an axis of the case is 0, so that no block runs")
    return math.ceil(time_s * PS_PER_S - 1e-6)


def reduced(target: Target, sm_count: int, clock_hz: float | None = None) -> Target:
    """Return a device of which all but some multiprocessors idle, or whose clock is held below the highest.

    Cache and board stay as they are, and so does memory as far as the ports of the others take it in.

    >>> from nearpeak.targets import target_of
    >>> round(reduced(target_of("h100_sxm"), 66).peaks["tensor.bf16"].flop_per_s / 1e12)
    495
    """
    return _reduced(Same(target), sm_count, clock_hz)


@lru_cache(maxsize=4096)
def _reduced(same: "Same[Target]", sm_count: int, clock_hz: float | None) -> Target:
    """Return the same device for the same figures, whose rates are then worked out once."""
    target = same.held
    slower = 1.0 if clock_hz is None else clock_hz / target.clock_hz
    peaks = {
        unit: replace(
            peak,
            flop_per_s=peak.flop_per_s * slower * sm_count / target.sm_count,
            clock_hz=peak.clock_hz * slower,
        )
        for unit, peak in target.peaks.items()
    }
    name = f"{target.name}+sm_count={sm_count}" + (f"+clock.max={clock_hz:.0f} Hz" if clock_hz else "")
    less = replace(target, name=name, sm_count=sm_count, clock_hz=target.clock_hz * slower, peaks=peaks)
    reached = min(target.dram.bandwidth_bytes_per_s or math.inf, memory_rates(less)["l2"])
    return less if math.isinf(reached) else replace(less, dram=replace(target.dram, bandwidth_bytes_per_s=reached))


def pooled_s(target: Target, moved_bytes: Mapping[str, float]) -> float:
    """Return the least time in which all bytes of a kernel pass the pools that the device's blocks share.

    >>> from nearpeak.targets import target_of
    >>> round(pooled_s(target_of("h100_sxm"), {"dram": 3.1155e9}), 6)
    0.001
    """
    rates = memory_rates(target)
    return max((size / rates[pool] for pool, size in moved_bytes.items()), default=0.0)


def after_longest_s(target: Target, body_s: float, longest_s: float, moved_bytes: Mapping[str, float]) -> float:
    """Return what resources that overlap take beyond the longest, which the pools may stretch on their own.

    Without that, a faster resource would shorten the longest and leave more behind it, while the pool takes as long.
    """
    return max(0.0, body_s - max(longest_s, pooled_s(target, moved_bytes)))


def filling(target: Target, each_count: int = 1) -> Limits:
    """Return the needs of blocks of which `each_count` fill a multiprocessor.

    >>> from nearpeak.targets import target_of
    >>> filling(target_of("h100_sxm"), 2).registers_count
    32768
    """
    limits = limits_of(target)
    return Limits(
        ctas_count=1, threads_count=min(256, limits.threads_count // each_count),
        registers_count=limits.registers_count // each_count, shared_bytes=limits.shared_bytes // each_count,
    )  # fmt: skip
