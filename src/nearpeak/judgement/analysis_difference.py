"""Comparison of two analyses by figure, target and case; swapping them mirrors every verdict."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.core.answers.analysis_comparison import (
    BETTER,
    NOT_COMPARABLE,
    SAME,
    WORSE,
    CaseComparison,
    Change,
    Comparison,
    TargetComparison,
)
from nearpeak.core.answers.execution_time import MODES
from nearpeak.judgement.step_answer import expected_of, unpredicted_of

SAME_RATIO = 1e-9
"""Relative difference up to which two figures are the same: bounds have no noise, only rounding."""
_TIMES = dict.fromkeys(("bound_s", "chained_s", "unfused_s", "launch_floor_s"), "s")
_WORK = {"matrix_flop": "FLOP", "total_flop": "FLOP", "fused_bytes": "B", "unfused_bytes": "B"}
_MEMORY = dict.fromkeys(("weight_bytes", "activation_peak_bytes", "peak_bytes"), "B")


class _Entry(NamedTuple):
    """One case on one target."""

    label: str = ""
    """The case in one line."""
    bound_s: float = 0.0
    """Bound of all calls."""
    call_count: int = 0
    """Calls."""
    expected_s: float | None = 0.0
    """Expected time of all calls; none where some have none."""


_NOTHING = _Entry()


def compare(baseline: Analysis, candidate: Analysis) -> Comparison:
    """Return how `candidate` differs from `baseline`; less time, work and memory is better.

    Verdicts are those of expected times where both have one, in the execution mode of each, else those of bounds.
    Steps of another kind, batch or coverage, bounds under another policy and targets with other roofs are not
    comparable; the reason is stated. Cases that both have are comparable even where the steps are not.
    """
    reason = _step_reason(baseline, candidate)
    pairs = _pairs([target.target for target in baseline.targets], [target.target for target in candidate.targets])
    work_changes = _changes(baseline, candidate, _WORK)
    if baseline.memory is not None and candidate.memory is not None:
        work_changes += _changes(baseline.memory, candidate.memory, _MEMORY)
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        reason=reason,
        changes=() if reason else work_changes,
        targets=tuple(_target(pair, baseline, candidate, reason) for pair in pairs),
    )


def verdict(baseline: float, candidate: float) -> str:
    """Return whether the candidate needs less, more or the same.

    >>> verdict(2.0, 1.0), verdict(1.0, 2.0), verdict(1.0, 1.0)
    ('better', 'worse', 'same')
    """
    if math.isclose(baseline, candidate, rel_tol=SAME_RATIO):
        return SAME
    return BETTER if candidate < baseline else WORSE


def _change(quantity: str, unit: str, baseline: float, candidate: float) -> Change:
    return Change(quantity=quantity, pair=(unit, baseline, candidate), verdict=verdict(baseline, candidate))


def _changes(baseline: object, candidate: object, units: Mapping[str, str]) -> tuple[Change, ...]:
    """Return the changes of the attributes of `units` that both have."""
    pairs = ((name, unit, getattr(baseline, name), getattr(candidate, name)) for name, unit in units.items())
    return tuple(_change(*pair) for pair in pairs if None not in pair)


def _step_reason(baseline: Analysis, candidate: Analysis) -> str:
    """Return why the steps as wholes are not comparable."""
    if baseline.step != candidate.step:
        return f"other step: {baseline.step} against {candidate.step}"
    if baseline.batch_count != candidate.batch_count:
        return f"other batch: {baseline.batch_count} against {candidate.batch_count}"
    if dict(baseline.uncovered) != dict(candidate.uncovered):
        left, right = (a.call_count - a.covered_count for a in (baseline, candidate))
        return f"other coverage: {left} calls without a rule against {right}"
    return ""


def _target_reason(baseline: Analysis, candidate: Analysis, left: TargetAnalysis, right: TargetAnalysis) -> str:
    """Return why bounds on one target are not comparable, of steps and cases alike."""
    if baseline.policy != candidate.policy:
        return f"other policy: {_policy(baseline)} against {_policy(candidate)}"
    if left.target != right.target:  # a what-if edit: that the roofs differ is the question
        return ""
    for name in ("matrix_flop_per_s", "dram_bytes_per_s"):
        rates = (getattr(left, name), getattr(right, name))
        # Where the main formats differ, so do the units; that is a change of the workload, not of the target.
        if left.matrix_unit == right.matrix_unit and not math.isclose(*rates, rel_tol=SAME_RATIO):
            return f"other target: {name} {rates[0]:.6g} against {rates[1]:.6g}"
    return ""


def _policy(analysis: Analysis) -> str:
    policy = analysis.policy
    outputs = "output credit" if policy.output_credit else "no output credit"
    return f"{policy.dtype}, {outputs}, {'cold' if policy.cold_inputs else 'warm'} inputs"


def _pairs(left: list[str], right: list[str]) -> list[tuple[str, str]]:
    """Return which targets to compare: those of one name, then a device with its what-if edit (after a plus).

    >>> _pairs(["t4", "l4"], ["l4", 't4+dram.bandwidth="1 TB/s"'])
    [('t4', 't4+dram.bandwidth="1 TB/s"'), ('l4', 'l4')]
    """
    rest = [name for name in right if name not in left]
    pairs = []
    for name in left:
        edited = [target for target in rest if target.partition("+")[0] == name.partition("+")[0]]
        other = name if name in right or len(edited) != 1 else edited[0]
        rest = [target for target in rest if target != other]
        pairs.append((name, other))
    return pairs + [(name, name) for name in rest]


def _target(pair: tuple[str, str], baseline: Analysis, candidate: Analysis, step_reason: str) -> TargetComparison:
    left, right = (
        next((row for row in analysis.targets if row.target == name), None)
        for analysis, name in zip((baseline, candidate), pair, strict=True)
    )
    name = pair[0] if pair[0] == pair[1] else f"{pair[0]} → {pair[1]}"
    if left is None or right is None:
        reason = f"only in the {'baseline' if right is None else 'candidate'}"
        return TargetComparison(target=name, verdict=NOT_COMPARABLE, reason=reason, changes=(), cases=())
    target_reason = _target_reason(baseline, candidate, left, right)
    reason = target_reason or step_reason
    changes = () if reason else (*_expected_changes(baseline, candidate, left, right), *_changes(left, right, _TIMES))
    return TargetComparison(
        target=name,
        verdict=NOT_COMPARABLE if reason else changes[0].verdict,
        reason=reason or _other_calls(left, right),
        changes=changes,
        cases=() if target_reason else _case_comparisons(baseline, candidate, left, right),
    )


def _other_calls(left: TargetAnalysis, right: TargetAnalysis) -> str:
    """Return that expected times are of other calls and bounds decide; empty where they are of the same."""
    if left.prediction is None or right.prediction is None or unpredicted_of(left) == unpredicted_of(right):
        return ""
    counts = [sum(unpredicted_of(side).values()) for side in (left, right)]
    return f"expected times leave out other calls ({counts[0]} against {counts[1]}), so bounds are compared"


def _expected_changes(
    baseline: Analysis, candidate: Analysis, left: TargetAnalysis, right: TargetAnalysis
) -> tuple[Change, ...]:
    """Return the changes of expected times, first that of the headlines; none where they leave out other calls."""
    old, new = expected_of(baseline, left), expected_of(candidate, right)
    if _other_calls(left, right):
        return ()
    modes = [{execution.mode: execution.time_s for execution in side.executions} for side in (left, right)]
    named = [baseline.execution, candidate.execution]
    by_mode = {
        mode: _change(f"expected_{mode}_s", "s", modes[0][mode], modes[1][mode])
        for mode in MODES if mode in modes[0] and mode in modes[1]
    }  # fmt: skip
    if named[0] == named[1] and named[0] in by_mode:
        return by_mode.pop(named[0]), *by_mode.values()
    first = [] if old is None or new is None else [_change("expected_s", "s", old.time_s, new.time_s)]
    return *first, *by_mode.values()


def _entries(analysis: Analysis, target: TargetAnalysis) -> Mapping[str, _Entry]:
    """Return the cases by digest; one that several modules call is added up."""
    entries: dict[str, _Entry] = {}
    for row, time in zip(analysis.rows, target.times, strict=True):
        entry = entries.get(row.case.digest, _NOTHING)
        expected_s = None
        if entry.expected_s is not None and time.prediction is not None:
            expected_s = entry.expected_s + time.prediction.time_s * row.call_count
        entries[row.case.digest] = _Entry(
            row.label, entry.bound_s + time.bound_s * row.call_count, entry.call_count + row.call_count, expected_s
        )
    return entries


def _case_comparisons(
    baseline: Analysis, candidate: Analysis, left: TargetAnalysis, right: TargetAnalysis
) -> tuple[CaseComparison, ...]:
    """Return the cases, largest change first.

    Cases measured below their bound get no verdict: the bound is wrong until the cause is known.
    """
    old, new = _entries(baseline, left), _entries(candidate, right)
    cases = [_case(digest, old.get(digest), new.get(digest)) for digest in {*old, *new}]
    cases.sort(key=lambda case: (-abs(case.changes[-1].pair[2] - case.changes[-1].pair[1]), case.digest))
    beaten = {
        row.digest: f"{name} measured it at {row.measured_s:.6g} s, below its bound of {row.bound_s:.6g} s"
        for name, target in (("candidate", right), ("baseline", left))
        for row in target.below_bound
        if row.cause == "open"
    }
    return tuple(
        replace(row, verdict=NOT_COMPARABLE, reason="; ".join(filter(None, (row.reason, beaten[row.digest]))))
        if row.digest in beaten
        else row
        for row in cases
    )


def _case(digest: str, left: _Entry | None, right: _Entry | None) -> CaseComparison:
    label = (left or right or _NOTHING).label
    old, new = left or _NOTHING, right or _NOTHING
    changes: tuple[Change, ...] = (
        _change("call_count", "", old.call_count, new.call_count), _change("total_s", "s", old.bound_s, new.bound_s),
    )  # fmt: skip
    if old.expected_s is not None and new.expected_s is not None:
        changes += (_change("expected_total_s", "s", old.expected_s, new.expected_s),)
    if left is None or right is None:
        reason = f"only in the {'baseline' if right is None else 'candidate'}"
        apart = tuple(replace(change, verdict=NOT_COMPARABLE) for change in changes)
        return CaseComparison(label=label, digest=digest, verdict=NOT_COMPARABLE, reason=reason, changes=apart)
    one_call = _change("bound_s", "s", left.bound_s / left.call_count, right.bound_s / right.call_count)
    return CaseComparison(
        label=label, digest=digest, verdict=changes[-1].verdict, reason="", changes=(one_call, *changes)
    )
