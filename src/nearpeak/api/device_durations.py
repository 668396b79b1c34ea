"""Predicted durations of kernels on a device, whole or with multiprocessors taken away, remembered by case."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.systems.duration import WHOLE, KernelDuration, Taken
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.attention_kernels import AS_PREDICTED, attention_share

_PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm", "attention", "varlen_attention")
"""Operators whose FLOP count towards the utilisation of a model."""
_MOVED_ROW = 64
"""Elements of a row from which a gather is a copy of whole rows, as kernels that permute tokens for experts do it;
predictions of gathers stand on PyTorch's own kernel, which computes a place for every element."""
_ATTENTION = ("attention", "varlen_attention")
_MEMORY_STEPS = 64
"""Shares of the memory rate are rounded to so many parts of the whole: kernels are predicted once for each."""
_ROUNDED = ("gemm", "conv")
"""Operators whose products of fp32 PyTorch may round to TF32."""
CLOCK_STEPS = 256
"""Sustained clocks are rounded to so many parts of the highest, so that steps share predicted times."""
_FAMILY_AXIS = {"elementwise": "pointwise", "cast": "pointwise", "copy": "pointwise", "dropout": "pointwise"}
"""Operators whose kernels are of one kind: their errors go together."""


def kernel_durations(
    target: Target, attention: str = AS_PREDICTED, clock_ratio: float = 1.0, *, has_tf32: bool = False
) -> Callable[[Case, Taken], KernelDuration]:
    """Return the function that gives the duration of a case on what a collective beside it leaves of `target`.

    Args:
        attention: library of attention kernels, whose share of the documented rate holds predictions back.
        clock_ratio: clock that the board sustains, of its highest; kernels run in bursts at 1.
        has_tf32: whether products of fp32 are rounded to TF32.

    Raises:
        NotModelledError: TF32, of which no document of the device states a rate.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> times = kernel_durations(target_of("h100_sxm"))
    >>> product = case("gemm", m=8192, n=8192, k=8192, dtype="bf16")
    >>> times(product, Taken(sm_count=16)).time_s > times(product, WHOLE).time_s
    True
    >>> copy = case("copy", elements=2**28, dtype="bf16")
    >>> round(times(copy, Taken(memory_ratio=0.25)).time_s / times(copy, WHOLE).time_s, 2)
    1.33
    """
    if has_tf32 and "tensor.tf32" not in target.peaks:
        raise NotModelledError(f"{target.name}: no document states a rate of TF32 products; fp32 or bf16 would work")
    return _remembered(Same(target), attention, clock_ratio, has_tf32)


def sustained_clock_ratio(target: Target, counts: Mapping[Case, float], idle_s: float = 0.0) -> float:
    """Return the clock, of the highest, at which a board runs a mix of kernels within its power limit; 1 where it may.

    Boards without a documented limit, and mixes whose energy nothing tells, run as in bursts. The clock is rounded to
    1/256.

    Args:
        counts: cases with how often each runs.
        idle_s: time between them in which the board draws what it draws at rest.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> mix = {case("gemm", m=8192, n=8192, k=8192, dtype="bf16"): 1.0}
    >>> 0.3 < sustained_clock_ratio(target_of("h100_sxm"), mix) <= sustained_clock_ratio(target_of("h100_sxm"), mix, 1)
    True
    """
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.prediction.power.sustained_clock import KernelLoad, load_of_case, sustained_clock

    if target.kind != "gpu" or target.power_w is None:
        return 1.0
    loads = [KernelLoad(clocked_s=0.0, other_s=idle_s, clocked_j=0.0, steady_j=0.0, clock_ratio=1.0)]
    times = [1.0]
    for each, count in counts.items():
        moved = _moved(each)
        load = load_of_case(target, moved, predict_case(moved, target))
        if load is not None:
            loads.append(load)
            times.append(count)
    if len(loads) == 1:
        return 1.0
    return round(sustained_clock(target, list(zip(loads, times, strict=True))) * CLOCK_STEPS) / CLOCK_STEPS


@lru_cache(maxsize=64)
def _remembered(
    target: "Same[Target]", attention: str, clock_ratio: float, has_tf32: bool
) -> Callable[[Case, Taken], KernelDuration]:
    from nearpeak.ops import work_of
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.prediction.power.sustained_clock import added_s, load_of_case

    durations: dict[tuple[Case, Taken], KernelDuration] = {}
    devices = {WHOLE: target.held}
    share = attention_share(attention, target.held.architecture)

    def duration(case: Case, taken: Taken) -> KernelDuration:
        if taken.memory_ratio:
            taken = Taken(taken.sm_count, round(taken.memory_ratio * _MEMORY_STEPS) / _MEMORY_STEPS)
        key = case, taken
        known = durations.get(key)
        if known is None:
            if taken not in devices:
                devices[taken] = reduced_device(target.held, taken)
            predicted = predict_case(_moved(case), devices[taken])
            if has_tf32 and case.op in _ROUNDED and dict(case.dtypes).get("dtype") == "fp32":
                predicted = _rounded(case, predicted, devices[taken])
            flop = sum(work_of(case).flop.values()) if case.op in _PRODUCTS else 0.0
            slower = 1.0
            peak = target.held.peaks.get(f"tensor.{dict(case.dtypes).get('dtype', '')}")
            if share is not None and peak is not None and case.op in _ATTENTION:
                reached = share.forward if case.phase == "forward" else share.backward
                slower = max(flop / (reached * peak.flop_per_s) / predicted.time_s, 1.0)
            if clock_ratio < 1:
                burst = predict_case(_moved(case), target.held)
                load = load_of_case(target.held, _moved(case), burst)
                slower *= 1.0 if load is None else 1.0 + float(added_s(load, clock_ratio)) / burst.time_s
            known = durations[key] = KernelDuration(
                slower * predicted.time_s, slower * predicted.low_s, slower * predicted.high_s, predicted.bound_s,
                _FAMILY_AXIS.get(case.op, case.op), predicted.distance_count, float(flop),
            )  # fmt: skip
        return known

    return duration


def _rounded(case: Case, plain: Prediction, device: Target) -> Prediction:
    """Return a product of fp32 that matrix units round to TF32, never slower than on the vector units.

    TF32 has no measurements; what its kernels do is taken from bf16's, which run on the same units: their times with
    the documented rate of TF32, and with operands twice as wide, so that memory and cache serve half as many.
    """
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.core.answers.bound import Policy
    from nearpeak.ops import case_of
    from nearpeak.prediction.case_prediction import predict_case

    record = {name: "bf16" if value == "fp32" else value for name, value in case.record().items()}
    halved = predict_case(case_of(record), _halved(Same(device)))
    bound_s = min(case_bound(case, device, Policy(dtype="tf32")).time_s, plain.bound_s)
    least = max(bound_s / halved.time_s, 1.0)
    if least * halved.time_s >= plain.time_s:
        return plain
    return replace(
        halved, time_s=least * halved.time_s, low_s=max(halved.low_s, bound_s), high_s=least * halved.high_s,
        bound_s=bound_s, parts_s=tuple(least * part for part in halved.parts_s),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _halved(device: "Same[Target]") -> Target:
    """Return a device on which bf16 takes what TF32 takes: rate of its products, half the bytes per second and kept."""
    target = device.held
    rate, l2_bytes = target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes
    return replace(
        target, peaks={**target.peaks, "tensor.bf16": target.peaks["tensor.tf32"]},
        dram=target.dram if rate is None else replace(target.dram, bandwidth_bytes_per_s=rate / 2),
        l2=target.l2 if l2_bytes is None else replace(target.l2, capacity_bytes=l2_bytes // 2),
    )  # fmt: skip


def _moved(case: Case) -> Case:
    """Return a gather of whole rows as the scatter of the same rows, which is predicted by its bytes."""
    from nearpeak.ops import case as case_of_operator

    axes = dict(case.axes)
    if case.op != "gather" or axes["width"] < _MOVED_ROW:
        return case
    touched = min(axes["touched_rows"], axes["rows"])
    return case_of_operator(
        "scatter", rows=axes["rows"], width=axes["width"], table_rows=max(axes["table_rows"], touched),
        touched_rows=touched, dtype=dict(case.dtypes)["dtype"],
    )  # fmt: skip


def reduced_device(target: Target, taken: Taken) -> Target:
    """Return a device without what a collective takes; memory capacity and caches stay.

    Raises:
        SpecError: as many multiprocessors are taken as there are, or all of the memory rate.

    >>> from nearpeak.targets import target_of
    >>> device = reduced_device(target_of("h100_sxm"), Taken(12, 0.25))
    >>> device.sm_count, device.dram.bandwidth_bytes_per_s / target_of("h100_sxm").dram.bandwidth_bytes_per_s
    (120, 0.75)
    """
    if not 0 <= taken.sm_count < target.sm_count or not 0 <= taken.memory_ratio < 1:
        raise SpecError(
            f"{target.name}: {taken.sm_count} of its {target.sm_count} multiprocessors and {taken.memory_ratio:.0%} of "
            "its memory rate cannot be taken away"
        )
    share, rate = 1 - taken.sm_count / target.sm_count, target.dram.bandwidth_bytes_per_s
    peaks = {unit: replace(peak, flop_per_s=peak.flop_per_s * share) for unit, peak in target.peaks.items()}
    dram = target.dram if rate is None else replace(
        target.dram, bandwidth_bytes_per_s=rate * (1 - taken.memory_ratio)
    )  # fmt: skip
    return replace(target, sm_count=target.sm_count - taken.sm_count, peaks=peaks, dram=dram)
