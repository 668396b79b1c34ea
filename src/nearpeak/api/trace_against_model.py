"""Comparison of a profiler trace with a captured model: calls that ran, calls never seen, the step's bound."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.finding_report import ModelJoin, Unseen
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.units import show

_NAMED = 3
"""Calls never seen that are named on the first screen."""
_LEAST = 0.5
"""Part of the calls below which something else ran than was captured."""


def join_of(executed: Executed, model: Workload, target: Target | None) -> ModelJoin:
    """Return how the calls of a model, matched by their cases, stand to what ran in the steps looked at.

    Raises:
        SpecError: the device is not known.
    """
    from nearpeak.api.questions import bound
    from nearpeak.api.questions import target as target_named

    device = target or (target_named(executed.target) if executed.target else None)
    if device is None:
        raise SpecError(f"{executed.name}: the device is not known; name it with --target")
    counts = model.case_counts()
    ran = _ran(executed)
    seen = {case: min(count * executed.step_count, ran.get(case, 0)) for case, count in counts.items()}
    unseen = [
        _unseen(case, (count * executed.step_count - seen[case]) / executed.step_count, device)
        for case, count in counts.items() if count * executed.step_count > seen[case]
    ]  # fmt: skip
    without = sum(call.call_count for call in model.calls if call.case is None)
    step_bound = bound(model, device)
    return ModelJoin(
        name=model.name, step_bound_s=step_bound.time_s, bound_is_whole=not step_bound.uncovered,
        call_count=sum(counts.values()), seen_count=sum(seen.values()) / executed.step_count,
        unseen=tuple(sorted(unseen, key=lambda operator: (-(operator.expected_s or 0.0), operator.label))),
        uncovered_count=without + round(sum(operator.call_count for operator in unseen if operator.expected_s is None)),
    )  # fmt: skip


def lines_of(join: ModelJoin, step_s: float) -> Iterator[str]:
    """Yield what the first screen says of a model and what ran, in sentences."""
    share = join.seen_count / join.call_count if join.call_count else 0.0
    least = "" if join.bound_is_whole else "≥ "
    bound = f"its step takes {least}{show(join.step_bound_s, 's')} at least, and took {show(step_s, 's')}"
    yield f"{join.name}: {join.seen_count:,.6g} of {join.call_count:,} calls ran as captured ({share:.0%}); {bound}"
    if join.unseen:
        named = "; ".join(f"{call.call_count:g} × {call.label}" for call in join.unseen[:_NAMED])
        more = f"; {len(join.unseen) - _NAMED} more" if len(join.unseen) > _NAMED else ""
        time = show(sum(call.expected_s or 0.0 for call in join.unseen), "s")
        yield f"never seen, {time} expected: {named}{more}"
    if share < _LEAST:
        yield (
            "most of the model did not run as captured: another batch, sequence, format or phase, or code that was"
            " compiled or fused"
        )
    if join.uncovered_count:
        yield (
            f"{join.uncovered_count:,} calls of {join.name} in a step have no expected time and are not in what is "
            "expected"
        )


def _ran(executed: Executed) -> dict[Case, int]:
    counts: dict[Case, int] = {}
    for operator in executed.operators:
        for case in operator.cases:
            counts[case] = counts.get(case, 0) + operator.call_count
    return counts


def _unseen(case: Case, count: float, device: Target) -> Unseen:
    from nearpeak.ops import label_of
    from nearpeak.prediction.case_prediction import predict_case

    try:
        expected = count * predict_case(case, device).time_s
    except NearpeakError:
        expected = None
    return Unseen(label_of(case), count, expected)
