"""Optimisation opportunities of a store: newest time of each case against bounds, other runners and variants."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from nearpeak.core.answers.gap import Abstention, Alternative, Ranking, TimedCase
from nearpeak.core.history.stored_run import Series
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.history.commit_points import points_of
from nearpeak.history.failed_series import WORDS
from nearpeak.history.series_state import prediction_of
from nearpeak.history.stored_devices import case_of_series, target_of_device
from nearpeak.judgement.opportunities import ranked
from nearpeak.judgement.opportunities.padding import padded_axes
from nearpeak.ops import OPS, work_of
from nearpeak.store import History, Store

_NARROWER = {"fp32": "bf16", "bf16": "fp8_e4m3", "fp16": "fp8_e4m3"}
"""The next narrower format of matrix units."""
_BATCHES = ("batch", "m", "rows", "tokens", "elements")
"""Axes along which work is batched."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest time of a series."""

    series: Series
    """The series."""
    case: Case
    """What ran."""
    time_s: float
    """Median over the launches of its newest commit."""
    host_s: float | None
    """Median host time; none where it was not recorded."""


def ranking_of(store: Store, series: Sequence[Series], workload: Workload | None = None, *, model: str = "") -> Ranking:
    """Return gaps and advice for the newest time of each series.

    Args:
        workload: states call counts and modules of each case; without it each case counts once.
        model: name of the workload in reports.

    Raises:
        NotFoundError: none of the series has a time of an operator's case.
    """
    cases = _timed_cases(series)
    ended = store.browsing.outcomes_since(cases, tuple(WORDS))
    newest = [timed for history in store.browsing.newest_histories([item for item in cases if item.id not in ended])
              if (timed := _newest(store, history)) is not None]  # fmt: skip
    uses = None if workload is None else _uses(workload)
    rows = [row for timed in newest for row in _rows(timed, newest, uses, model)]
    if not rows and not ended:
        reason = "is of an operator" if uses is None else f"runs in {model}"
        raise NotFoundError(f"{store.name}: no measured case {reason}; 'nearpeak history' lists what there is")
    ranking = ranked(rows)
    missing = tuple(
        Abstention(kind="gap", where=item.label, reason=f"its newest run {WORDS[ended[item.id]]}, and has no time")
        for item in cases
        if item.id in ended
    )
    return dataclasses.replace(ranking, abstentions=(*ranking.abstentions, *missing))


def _timed_cases(series: Sequence[Series]) -> list[Series]:
    """Return the series of times; benchmarks of other tools have no bound, and are left out."""
    timed = []
    for entry in series:
        if entry.metric.name == "time":
            with suppress(NearpeakError):
                case_of_series(entry)
                timed.append(entry)
    return timed


def _newest(store: Store, history: History) -> Newest | None:
    """Return the newest time; none where there is none."""
    points, series = points_of(history), history.series
    if not points:
        return None
    host_s = _host_s(store, history, points[-1].run_id)
    return Newest(series=series, case=case_of_series(series), time_s=points[-1].value, host_s=host_s)


def _host_s(store: Store, history: History, run: int) -> float | None:
    try:
        times = sorted(store.samples(run, history.series.id, channel="host_s").tolist())
    except NotFoundError:
        return None
    return float(times[len(times) // 2]) if times else None


Uses = Mapping[Case, tuple[tuple[str, int], ...]]


def _uses(workload: Workload) -> Uses:
    """Return, for each case of a workload, its modules with the calls in each; layer numbers stand as `*`."""
    from nearpeak.core.work.distinct_calls import module_pattern

    uses: dict[Case, dict[str, int]] = {}
    for call in workload.calls:
        if call.case is not None:
            counts, name = uses.setdefault(call.case, {}), module_pattern(call.module)
            counts[name] = counts.get(name, 0) + call.call_count
    return {case: tuple(counts.items()) for case, counts in uses.items()}


def _rows(timed: Newest, newest: Sequence[Newest], uses: Uses | None, model: str) -> Iterator[TimedCase]:
    places = (("", 1),) if uses is None else uses.get(timed.case, ())
    if not places:
        return
    base = _timed(timed, newest, model)
    for module, count in places:
        yield dataclasses.replace(base, module=module, call_count=count)


def _timed(timed: Newest, newest: Sequence[Newest], model: str) -> TimedCase:
    series, target = timed.series, target_of_device(timed.series.device)
    beside = [other for other in newest if other.series.device == series.device]
    rivals = [
        other for other in beside if other.case == timed.case and other.series.testbed.name != series.testbed.name
    ]
    best = min(rivals, key=lambda other: other.time_s, default=None)
    row = TimedCase(
        case=timed.case, label=series.label, target=series.device, runner=series.testbed.name, call_count=1,
        measured_s=timed.time_s, bound_s=None, best_known_s=best.time_s if best else None,
        best_known_by=best.series.testbed.name if best else "", model=model, team=series.owner, host_s=timed.host_s,
    )  # fmt: skip
    work = work_of(row.case)
    matrix_flop = sum(int(flop) for unit, flop in work.flop.items() if unit.startswith("matrix."))
    expected = prediction_of(series)
    row = dataclasses.replace(
        row, matrix_flop=matrix_flop, moved_bytes=work.read_bytes + work.write_bytes,
        expected_s=None if expected is None else expected.time_s,
    )  # fmt: skip
    if target is not None:
        row = _with_bound(row, target)
    return dataclasses.replace(row, alternatives=tuple(_alternatives(timed, beside, target)))


def _with_bound(row: TimedCase, target: Target) -> TimedCase:
    from nearpeak.bounds.case_bound import case_bound

    known = dataclasses.replace(
        row, sm_count=target.sm_count if target.kind == "gpu" else 1, launch_floor_s=target.launch_floor_s
    )
    try:
        bound = case_bound(row.case, target)
    except NearpeakError:
        return known
    terms_s = {term.name: term.time_s for term in bound.terms}
    return dataclasses.replace(known, bound_s=bound.time_s, limiter=bound.limiter, terms_s=terms_s)


def _alternatives(timed: Newest, beside: Sequence[Newest], target: Target | None) -> Iterator[Alternative]:
    """Yield variants of a case on its device (format, padding, batch) with measured time and bound."""
    same = [other for other in beside if other.series.testbed == timed.series.testbed]
    dtype = _NARROWER.get(dict(timed.case.dtypes).get("dtype", ""))  # operands narrower, results as they are
    narrower = _variant(timed.case, {"dtype": dtype}) if dtype is not None and "gemm" in timed.case.op else None
    if narrower is not None:
        yield Alternative(
            kind="precision", label=dict(narrower.dtypes)["dtype"], bound_s=_bound_s(narrower, target),
            measured_s=_time_of(narrower, same),
        )  # fmt: skip
    axes = dict(timed.case.axes)
    padded = _variant(timed.case, padded_axes(axes)) if {"m", "n", "k"} <= axes.keys() else None
    if padded is not None and padded != timed.case:
        yield Alternative(
            kind="padding", label=padded.label(), bound_s=_bound_s(padded, target), measured_s=_time_of(padded, same)
        )
    yield from _batches(timed, same)


def _batches(timed: Newest, same: Sequence[Newest]) -> Iterator[Alternative]:
    mine = dict(timed.case.axes)
    for axis in (name for name in _BATCHES if name in mine):
        for other in same:
            extent = dict(other.case.axes).get(axis, 0)
            if extent > mine[axis] and _but(timed.case, axis) == _but(other.case, axis):
                yield Alternative(
                    kind="batching", label=other.series.label, measured_s=other.time_s, work_ratio=extent / mine[axis]
                )


def _but(case: Case, axis: str) -> tuple[object, ...]:
    """Return all of a case but one axis."""
    rest = tuple((name, extent) for name, extent in case.axes if name != axis)
    return (case.op, case.phase, rest, case.dtypes, case.attributes)


def _variant(case: Case, changed: Mapping[str, int] | Mapping[str, str]) -> Case | None:
    """Return the case with other extents or formats; none where its operator does not allow them."""
    try:
        return OPS[case.op].case(case.phase, **dict((*case.axes, *case.dtypes, *case.attributes, *changed.items())))
    except NearpeakError:
        return None


def _time_of(case: Case, same: Sequence[Newest]) -> float | None:
    return next((timed.time_s for timed in same if timed.case == case), None)


def _bound_s(case: Case, target: Target | None) -> float | None:
    from nearpeak.bounds.case_bound import case_bound

    try:
        return None if target is None else case_bound(case, target).time_s
    except NearpeakError:
        return None
