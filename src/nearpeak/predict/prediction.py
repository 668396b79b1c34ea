"""Predictions of cases and tables: the form with its scalars, never below the bound."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.bound import Policy
from nearpeak.core.case import Case
from nearpeak.core.prediction import Calibration, Prediction, WaterfallTerm
from nearpeak.core.same import Same
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS, work_of
from nearpeak.ops._table import CaseGroup, CaseTable
from nearpeak.predict import FORMS
from nearpeak.predict._calibrations import calibration_for
from nearpeak.predict._form import USUAL, CaseColumns, Form, Rows, Setting, case_columns, leading
from nearpeak.predict._refined import reach, refined, scalars_of
from nearpeak.predict._work_columns import work_of_one
from nearpeak.predict.energy import POWER_TERM, energy_of, has_power, hides_power, powered
from nearpeak.predict.forms.power import limit_note
from nearpeak.predict.intervals import band_of, cells_of, end_of, ends_by_band, farther, stretched
from nearpeak.predict.spread import seen_elsewhere
from nearpeak.theory.pieces import PIECE_ROWS
from nearpeak.theory.table import bounds_s
from nearpeak.theory.terms import proved_s

BOUND = "bound"
"""Part of a predicted time by which the bound exceeds the form."""
CLASSICAL, ANY = Policy(), Policy(algorithm="any")
"""What bounds times: of all cases, and of those that libraries run by other than classical algorithms."""
LIBRARY = "library"
"""Part that the bounded correction adds or takes."""
BEYOND = (LIBRARY, POWER_TERM, BOUND)
"""Parts of a time that are no terms of its form."""
FARTHEST = 3
"""Most steps from the data that are told apart."""
ROUNDING_RATIO = 1e-12
"""Share of a time below which a part is what differences of others leave over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """Predictions as columns, row by row as the cases stand in their table."""

    predicted_s: Any
    """Expected times, never below the bounds."""
    low_s: Any
    """Low ends of the 90 % intervals."""
    high_s: Any
    """High ends of the 90 % intervals."""
    bound_s: Any
    """Times that nothing can beat; convolutions with several taps: not by any algorithm, classical or not."""
    limiter: Any
    """Name of the largest part of each row."""
    distance_count: Any
    """Steps from the data of each row."""
    bound_decides: Any
    """Whether the bound, not the form, gave the time."""


def predict_case(case: Case, target: Target, setting: Setting = USUAL, file: Path | None = None) -> Prediction:
    """Return the prediction of one case.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> found = predict_case(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), target_of("h100_sxm"))
    >>> found.bound_s <= found.low_s <= found.time_s <= found.high_s
    True
    >>> abs(sum(term.time_s for term in found.terms) / found.time_s - 1) < 1e-9
    True
    """
    if file is not None:
        return _predicted(case, target, setting, file)
    return _remembered(case, Same(target), setting)


@lru_cache(maxsize=1 << 14)
def _remembered(case: Case, same: "Same[Target]", setting: Setting) -> Prediction:
    """Return the prediction of a case, once: steps and searches ask for the same cases over and over."""
    return _predicted(case, same.held, setting, None)


def _predicted(case: Case, target: Target, setting: Setting, file: Path | None) -> Prediction:
    """Return the prediction of one case with the scalars of `file`, or with those that answer for the target."""
    form, given = form_for(case, target), case_columns(case)
    cases = form.stated(given, setting)
    if file is not None or form.calibration is not None:
        calibration = _grounds(target, form, cases, setting, file)
    else:
        calibration = _shared_grounds(Same(target), Same(form), case.op, case.dtypes, _grounding(setting))
    rows = form.rows(target, cases, scalars_of(calibration), setting)
    policy = ANY if _is_any(form.admits_any(cases)) else CLASSICAL
    bound_s = proved_s(_least_work(case, cases, policy), target, policy)
    ratio, scale = refined(calibration, form, target, cases, setting, rows)
    reaches = reach(calibration, form, target, given, setting, rows.time_s * ratio)
    plain_s, parts_s = float(rows.time_s[0]), rows.parts_s[0].tolist()
    ratio, scale = float(ratio[0]), float(scale[0])
    kernel_s = plain_s * ratio
    limited = powered(target, cases, form, kernel_s, parts_s)
    form_s = kernel_s + limited.added_s
    time_s = max(form_s, bound_s)
    parts = dict(zip(form.terms, limited.parts_s, strict=True))
    parts[LIBRARY] = parts.get(LIBRARY, 0.0) + plain_s * (ratio - 1.0)
    parts |= {POWER_TERM: limited.power_s, BOUND: time_s - form_s}
    terms = _terms(parts, time_s)
    first = int(leading(form, rows.parts_s)[0]) if form.bundles else parts_s.index(max(parts_s))
    regime = form.regimes[form.terms[first]]
    logs = _log_ends(Same(calibration), regime, band_of(form_s), form.kind(cases.attributes))
    calibration, is_beyond = _beyond_of_one(calibration, form.beyond(target, cases))
    low, high = (
        float(stretched(log, scale, apart, is_low=is_low) * np.ravel(far)[0])
        for log, apart, far, is_low in zip(logs, calibration.apart_ratio, reaches, (True, False), strict=True)
    )
    low_s, high_s = max(bound_s, time_s * low), time_s * high
    return Prediction(
        time_s=time_s, low_s=low_s, high_s=high_s,
        energy=energy_of(target, cases, (time_s, low_s, high_s)) if has_power(target) else None,
        terms=terms, limiter=max(terms, key=lambda one: one.time_s).name, bound_s=bound_s,
        regime=regime, calibration=calibration, algorithm=policy.algorithm,
        notes=_notes(form, target, is_open=reaches != (1.0, 1.0), is_beyond=is_beyond),
    )  # fmt: skip


def _notes(form: Form, target: Target, *, is_open: bool, is_beyond: bool) -> tuple[str, ...]:
    """Return what a prediction had to assume."""
    found = (form.open_note if is_open else "", form.beyond_note if is_beyond else "", limit_note(target))
    return tuple(note for note in found if note)


def _beyond(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[tuple[Any, Any], Any]:
    """Return by what rows are apart from those measured, faster and slower, and their further steps from the data."""
    if more is None:
        return calibration.apart_ratio, 0
    faster, slower = (farther(known, one) for known, one in zip(calibration.apart_ratio, more, strict=True))
    return (faster, slower), (np.maximum(*more) > 0).astype(np.int8)


def _beyond_of_one(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[Calibration, bool]:
    """Return the scalars of one case with what lies between it and those measured, and whether that is anything."""
    (faster, slower), steps = _beyond(calibration, more)
    if more is None or not steps[0]:
        return calibration, False
    distance = min(calibration.distance_count + 1, FARTHEST)
    return replace(calibration, apart_ratio=(float(faster[0]), float(slower[0])), distance_count=distance), True


def _is_any(found: Any) -> bool:
    return found if isinstance(found, bool) else bool(np.any(found))


def _least_work(case: Case, cases: CaseColumns, policy: Policy) -> Work:
    """Return the least work of a case, which is that of its costliest values where it depends on none."""
    if policy.algorithm == "classical" and not OPS[case.op].data_axes:
        return work_of_one(Same(cases))
    return work_of(case, policy.algorithm)


@lru_cache(maxsize=1 << 10)
def _log_ends(same: "Same[Calibration]", regime: str, band: int, kind: str) -> tuple[Any, Any]:
    """Return the logarithms of both ends of the interval of a case."""
    low, high = (end_of(one, regime, band, kind) for one in (same.held.low_ratio, same.held.high_ratio))
    return np.log(low), np.log(high)


def _terms(parts: Mapping[str, float], time_s: float) -> tuple[WaterfallTerm, ...]:
    """Return the parts of a time, without those that are nothing but what rounding leaves of others."""
    kept = {name: part for name, part in parts.items() if abs(part) > ROUNDING_RATIO * time_s}
    if not kept:
        kept = {max(parts, key=lambda name: parts[name]): time_s}
    return tuple(WaterfallTerm(name=name, time_s=part) for name, part in kept.items())


def predict_table(
    table: CaseTable, target: Target, setting: Setting = USUAL, file: Path | None = None
) -> PredictionTable:
    """Return the predictions of all cases of `table`."""
    from nearpeak.predict._largest_kernel import largest

    count, bound_s, names = table.row_count, _bounds_s(table, target), list[str]()
    time_s, low_s, high_s, decides = np.empty(count), np.empty(count), np.empty(count), np.empty(count, dtype=bool)
    limiter, distance = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int8)
    for group in table.groups:
        form, calibration, pieces = _group_rows(group, target, setting, file, count)
        regimes, kind = [form.regimes[one] for one in form.terms], form.kind(group.attributes)
        ends = [np.log(ends_by_band(one, regimes, kind)) for one in (calibration.low_ratio, calibration.high_ratio)]
        for where, given, part, rows in pieces:
            place, most_s = largest(rows.parts_s)
            first = leading(form, rows.parts_s) if form.bundles else place
            own = _setting_of(setting, where)
            ratio, scale = refined(calibration, form, target, part, own, rows)
            kernel_s, least_s = rows.time_s * ratio, bound_s[where]
            reaches = reach(calibration, form, target, given, own, kernel_s)
            form_s, its_limiter = _limited(target, part, form, rows, (kernel_s, least_s), (place, most_s))
            time_s[where] = expected_s = np.maximum(form_s, least_s)
            aparts, steps = _beyond(calibration, form.beyond(target, part))
            for its, logs, apart, far in zip((low_s, high_s), ends, aparts, reaches, strict=True):
                cells = cells_of(logs, first, form_s)
                its[where] = expected_s * (stretched(cells, scale, apart, is_low=its is low_s) * far)
            low_s[where] = np.maximum(low_s[where], least_s)
            limiter[where] = its_limiter + len(names)
            decides[where], distance[where] = least_s > form_s, np.minimum(calibration.distance_count + steps, FARTHEST)
        names += [*form.terms, *BEYOND]
    return PredictionTable(
        predicted_s=time_s, low_s=low_s, high_s=high_s, bound_s=bound_s,
        limiter=np.array(names, dtype=object)[limiter], distance_count=distance, bound_decides=decides,
    )  # fmt: skip


def _limited(
    target: Target, cases: CaseColumns, form: Form, rows: Rows, times_s: tuple[Any, Any], most: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return the times of cases under the board's limit, and the place of their largest parts among terms and BEYOND.

    Args:
        times_s: corrected times, and bounds.
        most: place of the largest term of the form, and that part.
    """
    from nearpeak.predict._largest_kernel import largest

    (kernel_s, least_s), (place, most_s) = times_s, (most[0].copy(), most[1])
    form_s, power_s = kernel_s, None
    some = np.flatnonzero(hides_power(target, form, rows.parts_s, most_s))
    if len(some):
        those = replace(cases, axes={name: column[some] for name, column in cases.axes.items()})
        found = powered(target, those, form, kernel_s[some], rows.parts_s[some].T)
        form_s, power_s = kernel_s.copy(), np.zeros_like(kernel_s)
        form_s[some], power_s[some] = kernel_s[some] + found.added_s, found.power_s
        place[some], most_s[some] = largest(np.stack(found.parts_s, 1))
    for beyond, part_s in enumerate((kernel_s - rows.time_s, power_s, least_s - form_s), len(form.terms)):
        larger = () if part_s is None else np.flatnonzero(part_s > most_s)
        if len(larger):
            place[larger], most_s[larger] = beyond, part_s[larger]
    return form_s, place


def _bounds_s(table: CaseTable, target: Target) -> Any:
    """Return what bounds the time of each row: by classical algorithms, by any where libraries use others."""
    found, count = bounds_s(table, target, Policy()), table.row_count
    admitted = np.zeros(count, dtype=bool)
    for group in table.groups:
        form = form_of(group.op, group.phase, target, group.dtypes, group.attributes)
        admitted[slice(None) if group.rows is None else group.rows] = form.admits_any(group_columns(group, count))
    return np.where(admitted, bounds_s(table, target, ANY), found) if admitted.any() else found


def _group_rows(
    group: CaseGroup, target: Target, setting: Setting, file: Path | None, count: int
) -> tuple[Form, Calibration, Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]]:
    """Return the form of one group, its scalars, and its times piece by piece with their places in the table.

    A piece has its cases as given, and with what they leave open.
    """
    form = form_of(group.op, group.phase, target, group.dtypes, group.attributes)
    cases = group_columns(group, count)
    size = count if group.rows is None else len(group.rows)
    calibration = _grounds(target, form, cases, setting, file)
    scalars = scalars_of(calibration)

    def pieces() -> Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]:
        for start in range(0, size, PIECE_ROWS):
            piece = slice(start, min(start + PIECE_ROWS, size))
            where = piece if group.rows is None else group.rows[piece]
            given, own = (
                replace(cases, axes={n: column[piece] for n, column in cases.axes.items()}),
                _setting_of(setting, where),
            )
            part = form.stated(given, own)
            yield where, given, part, form.rows(target, part, scalars, own)

    return form, calibration, pieces()


def _grounds(target: Target, form: Form, cases: CaseColumns, setting: Setting, file: Path | None) -> Calibration:
    """Return the scalars that answer, with the interval of whoever measures."""
    found = calibration_for(target, form, cases, file, corrected=setting.is_corrected, without=setting.leaves_out)
    return seen_elsewhere(found, setting.measured_by) if setting.measured_by else found


@lru_cache(maxsize=1 << 10)
def _shared_grounds(
    target: "Same[Target]", form: "Same[Form]", op: str, dtypes: tuple[tuple[str, str], ...], setting: Setting
) -> Calibration:
    """Return the scalars that answer for an operator and its formats, whatever the extents: one object for all."""
    cases = CaseColumns(op=op, phase="", dtypes=dict(dtypes), axes={})
    return _grounds(target.held, form.held, cases, setting, None)


@lru_cache(maxsize=64)
def _grounding(setting: Setting) -> Setting:
    """Return what of a setting chooses scalars."""
    return Setting(
        is_corrected=setting.is_corrected, measured_by=setting.measured_by, leaves_out=setting.leaves_out
    )  # fmt: skip


def _setting_of(setting: Setting, where: Any) -> Setting:
    """Return the setting of some rows of a table."""
    columns = {name: getattr(setting, name) for name in ("layer_tokens_count", "layer_rows_count")}
    return replace(setting, **{name: np.asarray(one)[where] for name, one in columns.items() if np.ndim(one)})


def group_columns(group: CaseGroup, count: int) -> CaseColumns:
    """Return a group of a table of `count` rows as forms read it, one value per row in every axis."""
    size = count if group.rows is None else len(group.rows)
    axes = {name: np.broadcast_to(np.asarray(column), (size,)) for name, column in group.axes.items()}
    return CaseColumns(op=group.op, phase=group.phase, dtypes=group.dtypes, axes=axes, attributes=group.attributes)


def form_for(case: Case, target: Target | None = None) -> Form:
    """Return the form that answers for a case."""
    return form_of(case.op, case.phase, target, dict(case.dtypes), dict(case.attributes))


def form_of(
    op: str, phase: str, target: Target | None = None,
    dtypes: Mapping[str, str] | None = None, attributes: Mapping[str, str | bool] | None = None,
) -> Form:  # fmt: skip
    """Return the form that answers for an operator; on the CPU at hand one for all of them.

    Formats and choices that the operator's own form does not model are left to the one for all operators.
    """
    if target is not None and target.kind == "cpu":
        return FORMS["cpu"]
    found = _forms().get((op, phase))
    if found is not None and dtypes is not None and found.lacks(dtypes, attributes or {}):
        found = next((one for one in _fallbacks() if op in one.ops and phase in one.phases), found)
    if found is None:
        known = ", ".join(sorted({name for name, its in _forms() if its == phase})) or "no operator"
        raise NotModelledError(f"predict: no form for {op} ({phase}); {phase} of {known} can be predicted")
    return found


@lru_cache
def _fallbacks() -> tuple[Form, ...]:
    return tuple(form for form in (FORMS[name] for name in FORMS) if form.is_fallback)


@lru_cache
def _forms() -> Mapping[tuple[str, str], Form]:
    forms = sorted((FORMS[name] for name in FORMS), key=lambda form: not form.is_fallback)
    return {(op, phase): form for form in forms for op in form.ops for phase in form.phases}
