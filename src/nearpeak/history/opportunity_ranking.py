"""Optimisation opportunities of a store: newest time of each case against bounds, other runners and variants."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from nearpeak.core.answers.gap import Alternative, Ranking, TimedCase
from nearpeak.core.history.stored_run import Series
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.history.commit_points import points_of
from nearpeak.history.stored_devices import case_of_series, target_of_device
from nearpeak.judgement.opportunities import ranked
from nearpeak.judgement.opportunities.padding import padded_axes
from nearpeak.ops import OPS, work_of
from nearpeak.store import History, Store

_NARROWER = {"fp32": "bf16", "bf16": "fp8_e4m3", "fp16": "fp8_e4m3"}
"""The next narrower format that units form products of."""
_BATCHES = ("batch", "m", "rows", "tokens", "elements")
"""Axes along which pieces of work are put together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest time of a series."""

    series: Series
    """Whose."""
    case: Case
    """What ran."""
    time_s: float
    """Median over the launches of its newest commit."""
    host_s: float | None
    """The same of the host's times; none where they were not recorded."""


def ranking_of(store: Store, series: Sequence[Series], workload: Workload | None = None, *, model: str = "") -> Ranking:
    """Return gaps and advice for the newest time of each series.

    Args:
        workload: says how often each case runs and in which modules; without it each case counts once.
        model: name of the workload in reports.

    Raises:
        NotFoundError: none of the series has a time of an operator's case.
    """
    newest = [found for one in store.browsing.newest_histories(_timed_cases(series))
              if (found := _newest(store, one)) is not None]  # fmt: skip
    uses = None if workload is None else _uses(workload)
    rows = [row for one in newest for row in _rows(one, newest, uses, model)]
    if not rows:
        said = "is of an operator" if uses is None else f"runs in {model}"
        raise NotFoundError(f"{store.name}: no measured case {said}; 'nearpeak history' lists what there is")
    return ranked(rows)


def _timed_cases(series: Sequence[Series]) -> list[Series]:
    """Return the series of times; benchmarks of other tools have no bound, and are left out."""
    found = []
    for one in series:
        if one.metric.name == "time":
            with suppress(NearpeakError):
                case_of_series(one)
                found.append(one)
    return found


def _newest(store: Store, history: History) -> Newest | None:
    """Return the newest time; none where there is none."""
    points, one = points_of(history), history.series
    if not points:
        return None
    host_s = _host_s(store, history, points[-1].run_id)
    return Newest(series=one, case=case_of_series(one), time_s=points[-1].value, host_s=host_s)


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

    found: dict[Case, dict[str, int]] = {}
    for call in workload.calls:
        if call.case is not None:
            counts, name = found.setdefault(call.case, {}), module_pattern(call.module)
            counts[name] = counts.get(name, 0) + call.call_count
    return {case: tuple(counts.items()) for case, counts in found.items()}


def _rows(one: Newest, newest: Sequence[Newest], uses: Uses | None, model: str) -> Iterator[TimedCase]:
    places = (("", 1),) if uses is None else uses.get(one.case, ())
    if not places:
        return
    base = _timed(one, newest, model)
    for module, count in places:
        yield dataclasses.replace(base, module=module, call_count=count)


def _timed(one: Newest, newest: Sequence[Newest], model: str) -> TimedCase:
    series, target = one.series, target_of_device(one.series.device)
    beside = [other for other in newest if other.series.device == series.device]
    rivals = [other for other in beside if other.case == one.case and other.series.testbed.name != series.testbed.name]
    best = min(rivals, key=lambda other: other.time_s, default=None)
    row = TimedCase(
        case=one.case, label=series.label, target=series.device, runner=series.testbed.name, call_count=1,
        measured_s=one.time_s, bound_s=None, best_known_s=best.time_s if best else None,
        best_known_by=best.series.testbed.name if best else "", model=model, team=series.owner, host_s=one.host_s,
    )  # fmt: skip
    work = work_of(row.case)
    matrix_flop = sum(int(flop) for unit, flop in work.flop.items() if unit.startswith("matrix."))
    row = dataclasses.replace(row, matrix_flop=matrix_flop, moved_bytes=work.read_bytes + work.write_bytes)
    if target is not None:
        row = _with_bound(row, target)
    return dataclasses.replace(row, alternatives=tuple(_alternatives(one, beside, target)))


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


def _alternatives(one: Newest, beside: Sequence[Newest], target: Target | None) -> Iterator[Alternative]:
    """Yield the other ways in which the work of a case can be done on its device: what was measured of them, bounds."""
    same = [other for other in beside if other.series.testbed == one.series.testbed]
    narrower = _in_format(one.case)
    if narrower is not None:
        yield Alternative(
            kind="precision", label=dict(narrower.dtypes)["dtype"], bound_s=_bound_s(narrower, target),
            measured_s=_time_of(narrower, same),
        )  # fmt: skip
    axes = dict(one.case.axes)
    padded = _with_axes(one.case, padded_axes(axes)) if {"m", "n", "k"} <= axes.keys() else None
    if padded is not None and padded != one.case:
        yield Alternative(
            kind="padding", label=padded.label(), bound_s=_bound_s(padded, target), measured_s=_time_of(padded, same)
        )
    yield from _batches(one, same)


def _batches(one: Newest, same: Sequence[Newest]) -> Iterator[Alternative]:
    mine = dict(one.case.axes)
    for axis in (name for name in _BATCHES if name in mine):
        for other in same:
            extent = dict(other.case.axes).get(axis, 0)
            if extent > mine[axis] and _but(one.case, axis) == _but(other.case, axis):
                yield Alternative(
                    kind="batching", label=other.series.label, measured_s=other.time_s, work_ratio=extent / mine[axis]
                )


def _but(case: Case, axis: str) -> tuple[object, ...]:
    """Return all of a case but one axis."""
    rest = tuple((name, extent) for name, extent in case.axes if name != axis)
    return (case.op, case.phase, rest, case.dtypes, case.attributes)


def _in_format(case: Case) -> Case | None:
    """Return the case with its operands in the next narrower format, results as they are; none where it has none."""
    dtypes = dict(case.dtypes)
    narrower = _NARROWER.get(dtypes.get("dtype", ""))
    if narrower is None or "gemm" not in case.op:
        return None
    try:
        return OPS[case.op].case(case.phase, **(dict(case.axes) | dtypes | {"dtype": narrower} | dict(case.attributes)))
    except NearpeakError:
        return None


def _with_axes(case: Case, axes: Mapping[str, int]) -> Case | None:
    try:
        return OPS[case.op].case(case.phase, **(dict(axes) | dict(case.dtypes) | dict(case.attributes)))
    except NearpeakError:
        return None


def _time_of(case: Case, same: Sequence[Newest]) -> float | None:
    return next((one.time_s for one in same if one.case == case), None)


def _bound_s(case: Case, target: Target | None) -> float | None:
    from nearpeak.bounds.case_bound import case_bound

    try:
        return None if target is None else case_bound(case, target).time_s
    except NearpeakError:
        return None
