"""Two executions compared: builds, or devices of different vendors, aligned by operator; a gate that can abstain."""

from difflib import SequenceMatcher
from math import exp, log, sqrt
from statistics import fmean, stdev

from nearpeak.core.executed import Executed, ExecutedOperator
from nearpeak.core.finding_report import TraceReport, gains_by_id
from nearpeak.core.trace_difference import OperatorPair, TraceDifference

TOLERANCE_RATIO = 0.02
"""Change of the step up to which two traces count as the same."""
_LEAST_STEPS = 3
_STUDENT = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 20: 2.09}
"""Quantiles of Student's distribution for 95 %, by degrees of freedom."""
Key = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...]]


def compare(baseline: TraceReport, candidate: TraceReport, tolerance_ratio: float = TOLERANCE_RATIO) -> TraceDifference:
    """Return what changed from `baseline` to `candidate`; swapping them inverts every ratio."""
    old, new = baseline.executed, candidate.executed
    ratio = candidate.step_s / baseline.step_s
    low, high = step_interval(old, new)
    verdict, reason = _verdict(old, new, low, high, tolerance_ratio)
    pairs, aligned = _pairs(old, new)
    gains = gains_by_id(baseline), gains_by_id(candidate)
    names = sorted({*gains[0], *gains[1]})
    return TraceDifference(
        baseline=_title(old), candidate=_title(new), verdict=verdict, reason=reason, step_ratio=ratio, low_ratio=low,
        high_ratio=high, tolerance_ratio=tolerance_ratio, baseline_step_s=baseline.step_s,
        candidate_step_s=candidate.step_s, parts=_parts(old, new), operators=pairs, aligned_ratio=aligned,
        findings=tuple((name, gains[0].get(name, 0.0), gains[1].get(name, 0.0)) for name in names),
    )  # fmt: skip


def _title(one: Executed) -> str:
    window = "" if one.steps_found else " (its whole window as one step)"
    return f"{one.name} on {one.device or one.target or 'an unnamed device'}{window}"


def step_interval(old: Executed, new: Executed) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the ratio of steps, of Welch's kind on logarithms."""
    if min(len(old.step_ns), len(new.step_ns)) < _LEAST_STEPS or not min(*old.step_ns, *new.step_ns) > 0:
        return None, None
    logs = [[log(length) for length in one.step_ns] for one in (old, new)]
    centre = fmean(logs[1]) - fmean(logs[0])
    spread = sqrt(sum(stdev(part) ** 2 / len(part) for part in logs))
    freedom = min(len(part) for part in logs) - 1
    quantile = _STUDENT[max(key for key in _STUDENT if key <= max(2, freedom))]
    return exp(centre - quantile * spread), exp(centre + quantile * spread)


def _too_little(old: Executed, new: Executed) -> str:
    """Return what two traces lack for a verdict."""
    if not (old.steps_found and new.steps_found):
        return f"steps are not marked in both: whole windows are compared; mark {_LEAST_STEPS} or more"
    few = min(old.step_count, new.step_count)
    return f"{few} step{'s are' if few > 1 else ' is'} too few to tell a change; record {_LEAST_STEPS} or more"


def _verdict(old: Executed, new: Executed, low: float | None, high: float | None, tolerance: float) -> tuple[str, str]:
    if old.format != new.format:
        return "not comparable", f"{old.format} and {new.format} take their times differently"
    if low is None or high is None or not (old.steps_found and new.steps_found):
        return "inconclusive", _too_little(old, new)
    if low > 1 + tolerance:
        return "regression", "the whole interval is slower than the tolerance"
    if high < 1 / (1 + tolerance):
        return "improvement", "the whole interval is faster than the tolerance"
    if low >= 1 / (1 + tolerance) and high <= 1 + tolerance:
        return "invariant", "the whole interval is within the tolerance"
    return "inconclusive", "the interval reaches from within the tolerance to beyond it; record more steps"


def _parts(old: Executed, new: Executed) -> tuple[tuple[str, float], ...]:
    """Return what the difference of the mean steps goes to."""

    def per_step(one: Executed) -> dict[str, float]:
        line = one.timeline
        found = {
            "computing": line.compute_ns, "communication alone": line.exposed_comm_ns,
            "copies alone": line.exposed_memcpy_ns, "fills alone": line.exposed_memset_ns,
        }  # fmt: skip
        found |= {f"idle: {cause}": time for cause, time in line.idle_by_cause_ns.items()}
        return {name: time * 1e-9 / one.step_count for name, time in found.items()}

    before, after = per_step(old), per_step(new)
    names = dict.fromkeys([*before, *after])
    found = [(name, after.get(name, 0.0) - before.get(name, 0.0)) for name in names]
    return tuple(sorted((pair for pair in found if pair[1]), key=lambda pair: -abs(pair[1])))


def _key(operator: ExecutedOperator) -> Key:
    return operator.name, operator.shapes, operator.dtypes


def _pairs(old: Executed, new: Executed) -> tuple[tuple[OperatorPair, ...], float]:
    """Return the operators that both ran, and the part of all calls of operators that is aligned in their order."""
    matcher = SequenceMatcher(None, old.called, new.called, autojunk=False)
    total = len(old.called) + len(new.called)
    share = 2 * sum(block.size for block in matcher.get_matching_blocks()) / total if total else 0.0
    before, after = ({_key(one): one for one in side.operators} for side in (old, new))
    pairs = [_pair(one, after[key], old.step_count, new.step_count) for key, one in before.items() if key in after]
    return tuple(sorted(pairs, key=lambda pair: (-abs(pair.candidate_ns - pair.baseline_ns), pair.name))), share


def _pair(old: ExecutedOperator, new: ExecutedOperator, old_steps: int, new_steps: int) -> OperatorPair:
    shapes = " ".join("×".join(map(str, shape)) for shape in old.shapes[:2])
    reached = [one.bound_s / one.measured_s if one.bound_s and one.measured_s else None for one in (old, new)]
    return OperatorPair(
        old.label or f"{old.name} {shapes}".strip(), old.device_ns / old_steps, new.device_ns / new_steps,
        old.call_count / old_steps, new.call_count / new_steps, *reached,
    )  # fmt: skip
