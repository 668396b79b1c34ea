"""Difference between a trace and the expected mixed-precision step, as terms in nanoseconds that sum exactly."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nearpeak.core.answers.mixed_precision import Efficiency
from nearpeak.core.traces.executed_precision import ExecutedPrecision, PrecisionGap
from nearpeak.core.traces.executed_run import NOTHING, Executed, ExecutedOperator
from nearpeak.core.traces.shortfall import Shortfall
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.precision.executed_formats import COMPILED_RATIO, is_product
from nearpeak.precision.expected_times import BOUND, expected_calls
from nearpeak.traces.executed.shortfall_terms import closed_shortfall, term_of

_LEAST_MATCHED = 0.5
"""Part of the expected calls below which another model, batch or phase ran."""


class _Expected(NamedTuple):
    """Expected calls and times of all steps."""

    counts: Mapping[Case, int]
    """Executions of each case."""
    time_ns: Mapping[Case, int]
    """Time of one."""
    other_ns: int
    """Time of calls without a case."""
    other_count: int
    """Their number."""


def precision_gap(
    executed: Executed, precision: ExecutedPrecision, against: str, workload: Workload, target: Target,
    efficiency: Efficiency = BOUND,
) -> PrecisionGap:  # fmt: skip
    """Return the difference between a trace and the expected step.

    Calls are matched by their cases. Each event is taken by the first of the terms: products of narrow formats on
    vector units, casts, layouts, communication, copies, the scaler, matched kernels, and what nothing expects.

    Args:
        against: which expectation `workload` is: `lowered`, `converted` or `written`.
    """
    baseline = precision.mode if precision.mode in ("fp32", "tf32", "default") else "default"
    wanted = _expected(executed, workload, target, baseline, efficiency)
    ran: Counter[Case] = Counter()
    for operator in executed.operators:
        for case in operator.cases:
            ran[case] += operator.call_count
    taken = {case: min(count, ran[case]) for case, count in wanted.counts.items()}  # expected executions that ran
    shortfall = _shortfall(executed, wanted, taken)
    whole = sum(wanted.counts.values()) + wanted.other_count
    matched = sum(taken.values()) / whole if whole else 0.0
    casts = sum(count for case, count in wanted.counts.items() if case.op == "cast") // executed.step_count
    return PrecisionGap(
        executed=precision, against=against, expected_cast_count=casts, shortfall=shortfall, matched_ratio=matched,
        reason=_doubt(executed, precision, matched),
    )  # fmt: skip


def _expected(
    executed: Executed, workload: Workload, target: Target, baseline: str, efficiency: Efficiency
) -> _Expected:
    counts: Counter[Case] = Counter()
    times: dict[Case, int] = {}
    other_ns = other_count = 0
    for call, time_s in expected_calls(workload, target, baseline, efficiency):
        count = call.call_count * executed.step_count
        if call.case is None:
            other_ns += round(time_s * 1e9) * count
            other_count += count
            continue
        counts[call.case] += count
        times[call.case] = max(times.get(call.case, 0), round(time_s * 1e9))
    return _Expected(counts, times, other_ns, other_count)


def _shortfall(executed: Executed, wanted: _Expected, taken: Mapping[Case, int]) -> Shortfall:
    terms: Counter[tuple[str, str]] = Counter()
    shares = _shares(executed, wanted, taken)
    covered = 0
    for place, item in enumerate(executed.items):
        if item.event == NOTHING:
            continue
        operator = None if item.operator == NOTHING else executed.operators[item.operator]
        share = shares.get(place)
        term = term_of(
            executed, item, operator, matched=share is not None,
            product=operator is not None and is_product(operator),
            casts=operator is not None and any(case.op == "cast" for case in operator.cases),
        )  # fmt: skip
        terms[term, ""] += item.exclusive_ns - (share or 0)
        covered += 0 if share is None else item.exclusive_ns
    for case, count in wanted.counts.items():
        unseen = (count - taken[case]) * wanted.time_ns[case]
        terms["casts" if case.op == "cast" else "unmatched", ""] -= unseen
    terms["unmatched", ""] -= wanted.other_ns
    expected = sum(count * wanted.time_ns[case] for case, count in wanted.counts.items()) + wanted.other_ns
    return closed_shortfall(executed, terms, expected, covered)


def _shares(executed: Executed, wanted: _Expected, taken: Mapping[Case, int]) -> dict[int, int]:
    """Return for each item of a matched operator its share of the expected time, whole nanoseconds that add up."""
    items: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(executed.items):
        if NOTHING not in {item.event, item.operator}:
            items[item.operator].append(place)
    left = dict(taken)
    shares: dict[int, int] = {}
    for number, places in items.items():
        time_ns = _consumed(executed.operators[number], wanted, left)
        if time_ns is None:
            continue
        shares.update(zip(places, _split(time_ns, [executed.items[place].device_ns for place in places]), strict=True))
    return shares


def _consumed(operator: ExecutedOperator, wanted: _Expected, left: dict[Case, int]) -> int | None:
    """Return the expected time of an operator's calls, up to the expected number; none where none is expected."""
    total, any_left = 0, False
    for case in operator.cases:
        count = min(operator.call_count, left.get(case, 0))
        if count:
            left[case] -= count
            total += count * wanted.time_ns[case]
            any_left = True
    return total if any_left else None


def _split(total: int, weights: list[int]) -> Iterator[int]:
    """Yield whole parts of `total` in proportion to the weights; they add up to it.

    >>> list(_split(10, [1, 1, 1])), list(_split(3, [0, 0]))
    ([3, 3, 4], [0, 3])
    """
    whole, reached, yielded = sum(weights), 0, 0
    for place, weight in enumerate(weights):
        reached += weight
        upto = total if place == len(weights) - 1 else total * reached // whole if whole else 0
        yield upto - yielded
        yielded = upto


def _doubt(executed: Executed, precision: ExecutedPrecision, matched: float) -> str:
    if "shapes" in executed.missing:
        return f"nothing can be matched: {executed.missing['shapes']}"
    if precision.compiled_ratio > COMPILED_RATIO:
        return (
            f"{precision.compiled_ratio:.0%} of the kernels' time is compiled code, and the expectation is one of eager"
            " operators: casts and operators inside such kernels count as missing"
        )
    if matched < _LEAST_MATCHED:
        return f"{matched:.0%} of the expected calls ran: another batch, sequence or phase; the terms then say little"
    if not executed.steps_found:
        return "no steps are marked: the whole window counts as one step, warm-up included"
    return ""
