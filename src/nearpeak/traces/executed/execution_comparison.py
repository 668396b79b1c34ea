"""Comparison of two executions (builds or devices) aligned by operator, with a verdict that can be inconclusive."""

from collections import Counter
from difflib import SequenceMatcher
from math import exp, log, sqrt
from statistics import fmean, stdev

from nearpeak.core.traces.executed_run import Executed, ExecutedOperator
from nearpeak.core.traces.finding_report import TraceReport, gains_by_id
from nearpeak.core.traces.trace_difference import OperatorPair, TraceDifference

TOLERANCE_RATIO = 0.02
"""Change of the step up to which two traces count as the same."""
_LEAST_STEPS = 3
_LEAST_ALIGNED = 0.2
"""Part of the operator calls below which two traces are of different programs."""
_STUDENT = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 20: 2.09}
"""Quantiles of Student's distribution for 95 %, by degrees of freedom."""
_UNSEEN = "steps that were not looked into"
Key = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...]]


def compare(baseline: TraceReport, candidate: TraceReport, tolerance_ratio: float = TOLERANCE_RATIO) -> TraceDifference:
    """Return what changed from `baseline` to `candidate`; swapping them inverts every ratio."""
    old, new = baseline.executed, candidate.executed
    ratio = new.mean_step_s / old.mean_step_s
    low, high = step_interval(old, new)
    aligned, by_kernel = _aligned(old, new), not (old.called or new.called)
    verdict, reason = _verdict(old, new, low, high, tolerance_ratio)
    if (foreign := _foreign(old, new, aligned)) and verdict != "not comparable":
        verdict, reason = "not comparable", foreign
    pairs = _kernel_pairs(old, new) if by_kernel else _pairs(old, new)
    gains = gains_by_id(baseline), gains_by_id(candidate)
    names = sorted({*gains[0], *gains[1]})
    unknown = [{abstention.id for abstention in side.abstentions} for side in (baseline, candidate)]

    def gain_of(side: int, name: str) -> float | None:
        return gains[side].get(name, None if name in unknown[side] else 0.0)

    return TraceDifference(
        baseline=_title(old), candidate=_title(new), verdict=verdict, reason=reason, step_ratio=ratio, low_ratio=low,
        high_ratio=high, tolerance_ratio=tolerance_ratio, baseline_step_s=old.mean_step_s,
        candidate_step_s=new.mean_step_s, parts=_parts(old, new), operators=pairs, aligned_ratio=aligned,
        by_kernel=by_kernel, classes=_classes(old, new),
        unnamed=tuple(side.name for side in (old, new) if not side.target),
        findings=tuple((name, gain_of(0, name), gain_of(1, name)) for name in names),
        device_numbers=(old.device_number, new.device_number),
    )  # fmt: skip


def _title(executed: Executed) -> str:
    window = "" if executed.steps_found else " (its whole window as one step)"
    return f"{executed.name} on {executed.device or executed.target or 'an unnamed device'}{window}"


def step_interval(old: Executed, new: Executed) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the ratio of steps, of Welch's kind on logarithms."""
    if min(len(old.step_ns), len(new.step_ns)) < _LEAST_STEPS or not min(*old.step_ns, *new.step_ns) > 0:
        return None, None
    logs = [[log(length) for length in executed.step_ns] for executed in (old, new)]
    centre = fmean(logs[1]) - fmean(logs[0])
    spread = sqrt(sum(stdev(part) ** 2 / len(part) for part in logs))
    freedom = min(len(part) for part in logs) - 1
    quantile = _STUDENT[max(key for key in _STUDENT if key <= max(2, freedom))]
    return exp(centre - quantile * spread), exp(centre + quantile * spread)


def _verdict(old: Executed, new: Executed, low: float | None, high: float | None, tolerance: float) -> tuple[str, str]:
    if old.format != new.format:
        return "not comparable", f"{old.format} and {new.format} take their times differently"
    if low is None or high is None or not (old.steps_found and new.steps_found):
        few = min(len(old.step_ns), len(new.step_ns))
        if not (old.steps_found and new.steps_found):
            reason = f"steps are not marked in both: whole windows are compared; mark {_LEAST_STEPS} or more"
        else:
            count = f"{few} step{'s are' if few > 1 else ' is'}"
            reason = f"{count} too few to tell a change; record {_LEAST_STEPS} or more"
        return "inconclusive", reason
    if low > 1 + tolerance:
        return "regression", "the whole interval is slower than the tolerance"
    if high < 1 / (1 + tolerance):
        return "improvement", "the whole interval is faster than the tolerance"
    if low >= 1 / (1 + tolerance) and high <= 1 + tolerance:
        return "invariant", "the whole interval is within the tolerance"
    return "inconclusive", "the interval reaches from within the tolerance to beyond it; record more steps"


def _parts(old: Executed, new: Executed) -> tuple[tuple[str, float], ...]:
    """Return what the difference of the mean steps goes to."""

    def per_step(executed: Executed) -> dict[str, float]:
        line = executed.timeline
        times_ns = {
            "computing": line.compute_ns, "communication alone": line.exposed_comm_ns,
            "copies alone": line.exposed_memcpy_ns, "fills alone": line.exposed_memset_ns,
        }  # fmt: skip
        times_ns |= {f"idle: {cause}": time for cause, time in line.idle_by_cause_ns.items()}
        parts_s = {name: time * 1e-9 / executed.step_count for name, time in times_ns.items()}
        return parts_s | {_UNSEEN: executed.mean_step_s - executed.window_ns * 1e-9 / executed.step_count}

    before, after = per_step(old), per_step(new)
    names = dict.fromkeys([*before, *after])
    times_ns = [(name, after.get(name, 0.0) - before.get(name, 0.0)) for name in names]
    return tuple(sorted((pair for pair in times_ns if pair[1]), key=lambda pair: -abs(pair[1])))


def _aligned(old: Executed, new: Executed) -> float | None:
    """Return the part of all calls of operators that is aligned in their order; none where one has none."""
    if not (old.called and new.called):
        return None
    matcher = SequenceMatcher(None, old.called, new.called, autojunk=False)
    return 2 * sum(block.size for block in matcher.get_matching_blocks()) / (len(old.called) + len(new.called))


def _foreign(old: Executed, new: Executed, aligned: float | None) -> str:
    """Return why two traces are not of the same step; compiled code has other operators and is accepted."""
    if aligned is None or aligned >= _LEAST_ALIGNED:
        return ""
    if any("triton" in use.name for executed in (old, new) for use in executed.kernels):
        return ""
    return f"{aligned:.0%} of the operator calls are the same: another model, batch or phase"


def _classes(old: Executed, new: Executed) -> tuple[tuple[str, float, float], ...]:
    """Return busy time, then the time of kernels by what they compute, longest first."""

    def per_step(executed: Executed) -> Counter[str]:
        family_ns: Counter[str] = Counter()
        for use in executed.kernels:
            family_ns[use.family] += use.device_ns
        return family_ns

    sides = per_step(old), per_step(new)
    steps = (1e-9 / old.step_count, 1e-9 / new.step_count)
    names = sorted({*sides[0], *sides[1]}, key=lambda name: -max(side[name] for side in sides))
    busy = ("busy", old.timeline.busy_ns * steps[0], new.timeline.busy_ns * steps[1])
    return (busy, *((name, sides[0][name] * steps[0], sides[1][name] * steps[1]) for name in names))


def _kernel_pairs(old: Executed, new: Executed) -> tuple[OperatorPair, ...]:
    """Return the kernels of the same name, which two builds of one stack share; bounds are of operators only."""
    before, after = ({use.name: use for use in side.kernels} for side in (old, new))
    pairs = [
        OperatorPair(
            name, before[name].device_ns / old.step_count, after[name].device_ns / new.step_count,
            before[name].launch_count / old.step_count, after[name].launch_count / new.step_count, None, None,
        ) for name in before.keys() & after.keys()
    ]  # fmt: skip
    return tuple(sorted(pairs, key=lambda pair: (-abs(pair.candidate_ns - pair.baseline_ns), pair.name)))


def _pairs(old: Executed, new: Executed) -> tuple[OperatorPair, ...]:
    """Return the operators that both ran."""
    before, after = ({(row.name, row.shapes, row.dtypes): row for row in side.operators} for side in (old, new))
    pairs = [_pair(row, after[key], old.step_count, new.step_count) for key, row in before.items() if key in after]
    return tuple(sorted(pairs, key=lambda pair: (-abs(pair.candidate_ns - pair.baseline_ns), pair.name)))


def _pair(old: ExecutedOperator, new: ExecutedOperator, old_steps: int, new_steps: int) -> OperatorPair:
    shapes = " ".join("×".join(map(str, shape)) for shape in old.shapes[:2])
    reached = [side.bound_s / side.measured_s if side.bound_s and side.measured_s else None for side in (old, new)]
    return OperatorPair(
        old.label or f"{old.name} {shapes}".strip(), old.device_ns / old_steps, new.device_ns / new_steps,
        old.call_count / old_steps, new.call_count / new_steps, *reached,
    )  # fmt: skip
