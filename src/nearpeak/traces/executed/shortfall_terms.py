"""Difference between executed and expected time of a trace's steps, as terms that sum exactly."""

from collections import Counter

from nearpeak.core.traces.executed_run import NOTHING, Executed, ExecutedOperator, QueueItem
from nearpeak.core.traces.shortfall import Part, Shortfall

_SCALER = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")


def shortfall_of(executed: Executed, unseen_ns: int = 0) -> Shortfall:
    """Return the difference between the steps and their expected time.

    Expected is what good software takes for the operators that ran, one after the other; each operator's expected time
    is spread over its items by their length. An instant in which several works run belongs to one of them, computing
    before communication before copies before fills, so that the parts and idle time add up to the window.

    Args:
        unseen_ns: expected time of operators that never ran.
    """
    totals: Counter[tuple[str, str]] = Counter()
    expected = 0
    covered = 0
    for item in executed.items:
        if item.event == NOTHING:
            continue
        operator = None if item.operator == NOTHING else executed.operators[item.operator]
        wanted = (
            None
            if operator is None or operator.predicted_s is None or not operator.device_ns
            else round(operator.predicted_s * 1e9 * operator.call_count * item.device_ns / operator.device_ns)
        )
        family = "" if item.kernel == NOTHING else executed.kernels[item.kernel].family
        term = term_of(
            executed, item, operator, casts=family == "cast",
            product=operator is not None and operator.family in ("gemm", "conv") and operator.dtypes[:1] != ("fp64",),
            matched=operator is not None and operator.predicted_s is not None,
        )  # fmt: skip
        totals[term, ""] += item.exclusive_ns - (wanted or 0)
        expected += wanted or 0
        covered += item.exclusive_ns if wanted is not None else 0
    totals["unmatched", ""] -= unseen_ns
    return closed_shortfall(executed, totals, expected + unseen_ns, covered)


def closed_shortfall(
    executed: Executed, totals: Counter[tuple[str, str]], expected_ns: int, covered_ns: int
) -> Shortfall:  # fmt: skip
    """Return the shortfall of terms by (term, detail), with idle time added and busy time that no item covers."""
    for cause, time in executed.timeline.idle_by_cause_ns.items():
        totals["idle", str(cause)] += time
    busy_ns = executed.timeline.busy_ns
    # Work without a call within the steps, such as that of other processes, is unmatched.
    totals["unmatched", ""] += busy_ns - sum(item.exclusive_ns for item in executed.items)
    parts = [Part(term, detail, time) for (term, detail), time in totals.items() if time]
    return Shortfall(
        expected_ns=expected_ns, executed_ns=executed.window_ns,
        parts=tuple(sorted(parts, key=lambda part: -part.time_ns)), covered_ratio=covered_ns / max(1, busy_ns),
    )  # fmt: skip


def term_of(
    executed: Executed, item: QueueItem, operator: ExecutedOperator | None, *, product: bool, casts: bool, matched: bool
) -> str:
    """Return the first term that an item belongs to.

    Args:
        product: whether matrix units could form what the operator computes.
        casts: whether the item casts, beyond what the name of its operator tells.
        matched: whether the item has an expected time.
    """
    use = None if item.kernel == NOTHING else executed.kernels[item.kernel]
    name = "" if operator is None else operator.name
    family, unit = ("", "") if use is None else (use.family, use.unit)
    terms = {
        "units": unit == "vector" and product,
        "casts": casts or name == "aten::_to_copy",
        "layout": family == "layout",
        "comm": item.kind == "comm",
        "copies": item.kind in ("copy", "set"),
        "scaler": name.removeprefix("aten::") in _SCALER,
        "kernels": matched,
    }
    return next((term for term, taken in terms.items() if taken), "unmatched")
