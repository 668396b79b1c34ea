"""Predicted durations of kernels on a device, whole or with multiprocessors taken away, remembered by case."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.systems.duration import WHOLE, KernelDuration, Taken
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.systems.training.attention_kernels import AS_PREDICTED, attention_share

_PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm", "attention", "varlen_attention")
"""Operators whose FLOP count towards the utilisation of a model."""
_MOVED_ROW = 64
"""Elements of a row from which a gather is a copy of whole rows, as kernels that permute tokens for experts do it;
predictions of gathers stand on PyTorch's own kernel, which computes a place for every element."""
_ATTENTION = ("attention", "varlen_attention")
_MEMORY_STEPS = 64
"""Shares of the memory rate are rounded to so many parts of the whole: kernels are predicted once for each."""
_FAMILY_AXIS = {"elementwise": "pointwise", "cast": "pointwise", "copy": "pointwise", "dropout": "pointwise"}
"""Operators whose kernels are of one kind: their errors go together."""


def kernel_durations(target: Target, attention: str = AS_PREDICTED) -> Callable[[Case, Taken], KernelDuration]:
    """Return the function that gives the duration of a case on what a collective beside it leaves of `target`.

    Args:
        attention: library of attention kernels, whose share of the documented rate holds predictions back.

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
    return _remembered(Same(target), attention)


@lru_cache(maxsize=64)
def _remembered(target: "Same[Target]", attention: str) -> Callable[[Case, Taken], KernelDuration]:
    from nearpeak.ops import work_of
    from nearpeak.prediction.case_prediction import predict_case

    durations: dict[tuple[Case, Taken], KernelDuration] = {}
    devices = {WHOLE: target.held}
    share = attention_share(attention, target.held.architecture)

    def duration(case: Case, taken: Taken) -> KernelDuration:
        if taken.memory_ratio:
            taken = Taken(taken.sm_count, round(taken.memory_ratio * _MEMORY_STEPS) / _MEMORY_STEPS)
        key = case, taken
        found = durations.get(key)
        if found is None:
            if taken not in devices:
                devices[taken] = reduced_device(target.held, taken)
            predicted = predict_case(_moved(case), devices[taken])
            flop = sum(work_of(case).flop.values()) if case.op in _PRODUCTS else 0.0
            slower = 1.0
            peak = target.held.peaks.get(f"tensor.{dict(case.dtypes).get('dtype', '')}")
            if share is not None and peak is not None and case.op in _ATTENTION:
                reached = share.forward if case.phase == "forward" else share.backward
                slower = max(flop / (reached * peak.flop_per_s) / predicted.time_s, 1.0)
            found = durations[key] = KernelDuration(
                slower * predicted.time_s, slower * predicted.low_s, slower * predicted.high_s, predicted.bound_s,
                _FAMILY_AXIS.get(case.op, case.op), predicted.distance_count, float(flop),
            )  # fmt: skip
        return found

    return duration


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
