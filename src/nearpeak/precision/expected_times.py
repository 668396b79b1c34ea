"""Expected times of a captured step in fp32, under autocast, and converted as a whole."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from nearpeak.bounds.terms.memory_traffic import bandwidth_of
from nearpeak.core.answers.mixed_precision import BASELINES, Cast, Efficiency, LoweredPart, MixedPrecision
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.target import Target
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Argument, Call, Workload
from nearpeak.errors import SpecError
from nearpeak.ops import OPS, work_of
from nearpeak.precision.cast_placement import CAST, NOBODY, ends_of, kept_when_compiled, owners_of, places_of
from nearpeak.precision.host_issue import Issued, ahead_s

SCALER = ("aten._amp_foreach_non_finite_check_and_unscale_", "aten._amp_update_scale_")
"""Operators of a GradScaler; after the first of them the host reads whether a gradient is not finite."""
HALF = ("bf16", "fp16")
BOUND = Efficiency()
"""Documented rates, reached in full."""


class _Priced(NamedTuple):
    """One call with its least time under each baseline."""

    call: Call
    times: Mapping[str, float]
    bound_by_memory: bool


def mixed_precision_of(
    baseline: Workload,
    lowered: Workload,
    target: Target,
    converted: Workload | None = None,
    fixed_s: float = 0.0,
    efficiency: Efficiency = BOUND,
) -> MixedPrecision:
    """Return the expected times of a step as written, lowered by autocast, and converted as a whole.

    Each call takes max(FLOP / rate, bytes / bandwidth) + `fixed_s`, by documented rates: the rate of the format of its
    first tensor, and all bytes of its inputs and outputs, those that are changed in place counted twice.

    Args:
        lowered: the same step, captured with `autocast`.
        converted: the same step, captured with `dtype`: no casts at all.
        efficiency: what part of the documented rates is reached; all of them unless something was measured.

    Raises:
        SpecError: `lowered` was not captured under autocast, or the two are different steps.
    """
    named = lowered.origin.get("autocast", "")
    if named not in HALF:
        raise SpecError(f"{lowered.name}: was not captured under autocast; capture it with --autocast bf16 or fp16")
    if baseline.step != lowered.step:
        raise SpecError(f"{lowered.name}: is a {lowered.step} step, the baseline is a {baseline.step} step")
    before, after = (_all(workload, target, fixed_s, efficiency) for workload in (baseline, lowered))
    whole_s, memory_bound = _sum(before, "fp32"), [priced for priced in before if priced.bound_by_memory]
    places = places_of(lowered)
    owners = owners_of(lowered.calls, places)
    speed = bandwidth_of(target) * efficiency.bandwidth_ratio
    kept_count, gone_s = kept_when_compiled(lowered.calls, places, lambda count: count / speed)
    fused_count = sum(lowered.calls[place].call_count for place in places) - kept_count
    return MixedPrecision(
        name=baseline.name, step=baseline.step, target=target.name, format=named, call_count=_count(baseline),
        lowered_count=_count(lowered), fixed_s=fixed_s,
        baseline_s={name: _sum(before, name) for name in BASELINES}, lowered_s=_sum(after, "default"),
        cast_s=sum(after[place].times["default"] * after[place].call.call_count for place in places),
        scaler_s=sum(workload.times["default"] for workload in after if workload.call.operator.startswith(SCALER)),
        converted_s=None if converted is None else _sum(_all(converted, target, fixed_s, efficiency), "default"),
        ahead_s={name: _ahead(before, name, fixed_s) for name in BASELINES},
        ahead_lowered_s=_ahead(after, "default", fixed_s),
        fused_s=_sum(after, "default") - gone_s - fused_count * fixed_s, kept_cast_count=kept_count,
        parts=_parts(before, after, owners), casts=tuple(_casts(lowered, after, owners)),
        memory_bound_ratio=_sum(memory_bound, "fp32") / whole_s if whole_s else 0.0,
        assumptions=_assumptions(baseline, lowered, efficiency),
    )  # fmt: skip


def moved_bytes(call: Call) -> int:
    """Return the bytes of all inputs and outputs of a call, as its source states them."""
    if call.form is None:
        work = None if call.case is None else work_of(call.case)
        return 0 if work is None else work.read_bytes + work.write_bytes
    tensors = [*_layouts(value for _, value in call.form.arguments), *call.form.results]
    return sum(dtype_of(tensor.dtype).bytes(prod(tensor.shape)) for tensor in tensors)


def issued_flop(call: Call) -> int:
    """Return the FLOP that matrix kernels issue: convolutions also multiply the padding, which bounds leave out.

    Source: 2 · outputs · (channels / groups) · taps of each pass, as FLOP counters state it.
    """
    if call.case is None:
        return 0
    if not _is_convolution(call) or call.form is None:
        return sum(count for unit, count in work_of(call.case).flop.items() if unit.startswith("matrix."))
    arguments = dict(call.form.arguments)
    weight, attributes = arguments["weight"], dict(call.case.attributes)
    outputs = arguments["input"] if arguments.get("transposed") else arguments.get("grad_output", call.form.results[0])
    assert isinstance(weight, Layout)
    assert isinstance(outputs, Layout)
    passes = (
        1 if call.case.phase == "forward" else sum(bool(attributes[f"grad_{name}"]) for name in ("input", "weight"))
    )
    return 2 * passes * prod(outputs.shape) * prod(weight.shape[1:])


def unit_of(target: Target, dtype: str, *, tf32: bool) -> str:
    """Return the unit on which products of `dtype` run: matrix units where the device has them.

    >>> from nearpeak.targets import target_of
    >>> unit_of(target_of("h200_sxm"), "fp32", tf32=False), unit_of(target_of("h200_sxm"), "fp32", tf32=True)
    ('vector.fp32', 'tensor.tf32')
    """
    first = ("tensor.tf32",) if tf32 and dtype == "fp32" else ()
    wanted = (*first, f"tensor.{dtype}", f"vector.{dtype}")
    return next((unit for unit in wanted if unit in target.peaks), "vector.fp32")


def expected_calls(
    workload: Workload, target: Target, baseline: str = "default", efficiency: Efficiency = BOUND
) -> Iterator[tuple[Call, float]]:
    """Yield each call of a step with the expected time of one execution, in seconds."""
    for priced in _all(workload, target, 0.0, efficiency):
        yield priced.call, priced.times[baseline]


def _all(workload: Workload, target: Target, fixed_s: float, efficiency: Efficiency) -> list[_Priced]:
    return [_priced(call, target, fixed_s, efficiency) for call in workload.calls]


def _priced(call: Call, target: Target, fixed_s: float, efficiency: Efficiency) -> _Priced:
    flop = issued_flop(call) / efficiency.flop_ratio
    memory_s = moved_bytes(call) / (bandwidth_of(target) * efficiency.bandwidth_ratio)
    if not flop:
        return _Priced(call, dict.fromkeys(BASELINES, memory_s + fixed_s), True)
    dtype = _format(call)
    slow, fast = (target.flop_per_s(unit_of(target, dtype, tf32=tf32)) for tf32 in (False, True))
    rates = {"fp32": slow, "tf32": fast, "default": fast if _is_convolution(call) else slow}
    times = {name: max(flop / rate, memory_s) + fixed_s for name, rate in rates.items()}
    return _Priced(call, times, flop / slow <= memory_s)


def _format(call: Call) -> str:
    """Return the format of the first tensor, which decides the unit."""
    if call.form is not None:
        first = next(_layouts(value for _, value in call.form.arguments), None)
        if first is not None:
            return first.dtype
    return next(iter(dict(call.case.dtypes).values()), "fp32") if call.case else "fp32"


def _is_convolution(call: Call) -> bool:
    return call.case is not None and OPS[call.case.op].family == "convolution"


def _layouts(values: Iterator[Argument]) -> Iterator[Layout]:
    for value in values:
        if isinstance(value, Layout):
            yield value
        elif isinstance(value, tuple):
            yield from _layouts(iter(value))


def _casts(lowered: Workload, priced: Sequence[_Priced], owners: Mapping[int, int]) -> Iterator[Cast]:
    for position, owner in owners.items():
        call = priced[position].call
        assert call.form is not None
        before, after = ends_of(call)
        kind = lowered.buffers[call.storages[0]].kind if call.storages else "activation"
        yield Cast(
            shape=call.form.results[0].shape, before=before, after=after,
            of="gradient" if call.phase == "backward" else kind,
            consumer="" if owner == NOBODY else priced[owner].call.operator, module=call.module,
            time_s=priced[position].times["default"],
        )  # fmt: skip


def _parts(
    before: Sequence[_Priced], after: Sequence[_Priced], owners: Mapping[int, int]
) -> tuple[LoweredPart, ...]:  # fmt: skip
    """Return the operators with their times in both precisions, casts with the operator that they serve."""
    counts, lowered_counts, lowered_s, cast_s = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    baseline: dict[str, Counter[str]] = {name: Counter() for name in BASELINES}
    for priced in before:
        counts[priced.call.operator] += priced.call.call_count
        for name in BASELINES:
            baseline[name][priced.call.operator] += priced.times[name] * priced.call.call_count  # type: ignore[assignment]
    for position, priced in enumerate(after):
        time_s = priced.times["default"] * priced.call.call_count
        if position in owners:
            owner = owners[position]
            cast_s[CAST if owner == NOBODY else after[owner].call.operator] += time_s  # type: ignore[assignment]
            continue
        lowered_counts[priced.call.operator] += priced.call.call_count
        lowered_s[priced.call.operator] += time_s  # type: ignore[assignment]
    names = dict.fromkeys([*counts, *lowered_counts, *cast_s])
    rows = [
        LoweredPart(
            operator=name, call_count=counts[name], lowered_count=lowered_counts[name],
            baseline_s={key: float(baseline[key][name]) for key in BASELINES}, lowered_s=float(lowered_s[name]),
            cast_s=float(cast_s[name]),
        )
        for name in names
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.baseline_s["default"], row.operator)))


def _ahead(calls: Sequence[_Priced], baseline: str, host_s: float) -> float:
    """Return the time of a step whose host issues ahead, each operator in `host_s`."""
    issued = (
        Issued(priced.times[baseline] - host_s, priced.call.call_count, priced.call.operator.startswith(SCALER[0]))
        for priced in calls
    )
    return ahead_s(issued, host_s)


def _sum(calls: Sequence[_Priced], baseline: str) -> float:
    return sum(priced.times[baseline] * priced.call.call_count for priced in calls)


def _count(workload: Workload) -> int:
    return sum(call.call_count for call in workload.calls)


def _assumptions(baseline: Workload, lowered: Workload, efficiency: Efficiency) -> tuple[str, ...]:
    rates = "rates and bandwidth as documented"
    if efficiency.source:
        rates = (
            f"{efficiency.flop_ratio:.0%} of the documented rates and {efficiency.bandwidth_ratio:.0%} of the bandwidth"
            f", as {efficiency.source} shows ({efficiency.flop_count} and {efficiency.bandwidth_count} operators)"
        )
    notes = [f"{rates}, every input and output moved once, caches cold"]
    if lowered.step == "train":
        notes.append("weights are cast once per context and step, as autocast keeps the casts of trained weights")
    missing = {**baseline.uncovered_counts(), **lowered.uncovered_counts()}
    if missing:
        notes.append(f"products of {', '.join(sorted(missing))} are not counted: no rule")
    return tuple(notes)
