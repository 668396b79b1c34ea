"""Data of history charts: small charts of series, thinned points, intervals, and levels of bound and prediction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import TrackPoint
from nearpeak.history.commit_points import points_of
from nearpeak.history.series_state import bound_of, prediction_of
from nearpeak.store import History
from nearpeak.store.rows.finding_values import StoredChange
from nearpeak.web.cell_text import where
from nearpeak.web.history_chart import MOST_SMALL, Chart, chart_of, kept_points, marks_of
from nearpeak.web.site import Site


def small_charts(site: Site, series: Iterable[Series]) -> tuple[Chart, ...]:
    """Return a small chart of each series, with the changes that are stored."""
    listed = tuple(series)
    changes = changes_by_series(site, [item.id for item in listed])
    histories = site.store.browsing.histories(listed) if listed else ()
    return tuple(_small(item, changes.get(item.series.id, ())) for item in histories)


def changes_by_series(site: Site, series: Sequence[int]) -> Mapping[int, tuple[StoredChange, ...]]:
    """Return the stored changes of some series."""
    by_series: dict[int, tuple[StoredChange, ...]] = {}
    for change in site.store.browsing.changes(series=series) if series else ():
        by_series[change.series] = (*by_series.get(change.series, ()), change)
    return by_series


def _small(history: History, changes: Sequence[StoredChange]) -> Chart:
    history = thinned(history, {change.rev_hi for change in changes} | {change.order_key for change in changes})
    series, points = history.series, points_of(history)
    return chart_of(
        f"series{series.id}", f"{series.label}, {where(series)}", series.metric.unit, points,
        intervals_of(history, points),
        marks=marks_of(changes, points, series.metric.direction), is_small=True,
    )  # fmt: skip


def thinned(history: History, always: Collection[object], most: int = MOST_SMALL) -> History:
    """Return a history with about so many commits: of each stretch those with the smallest and the largest value.

    Args:
        always: commits and places that are kept: where changes are marked.
    """
    usable = np.flatnonzero(~np.isnan(history.median))
    if len(usable) <= most:
        return history
    keys = [history.shas[row] or f"run {history.run_ids[row]}" for row in usable.tolist()]
    starts = np.flatnonzero([place == 0 or key != keys[place - 1] for place, key in enumerate(keys)])
    if len(starts) <= most:
        return history
    sums = np.add.reduceat(history.median[usable], starts)
    counts = np.diff(np.append(starts, len(usable)))
    places = history.order_keys[usable].tolist()
    marked = [
        number for number, start in enumerate(starts.tolist()) if keys[start] in always or places[start] in always
    ]
    is_kept = np.zeros(len(starts), dtype=bool)
    is_kept[kept_points((sums / counts).tolist(), marked, most)] = True
    return _rows_of(history, usable[np.repeat(is_kept, counts)])


def _rows_of(history: History, rows: npt.NDArray[np.int64]) -> History:
    columns: dict[str, Any] = {}
    for field in fields(history):
        column = getattr(history, field.name)
        if isinstance(column, np.ndarray):
            columns[field.name] = column[rows]
        elif isinstance(column, tuple):
            columns[field.name] = tuple(column[row] for row in rows.tolist())
    return replace(history, **columns)


def intervals_of(history: History, points: Sequence[TrackPoint]) -> list[tuple[float, float]]:
    """Return, for each point, the span of the 95 % intervals of its launches; its value where none is known."""
    ends: dict[object, tuple[float, float]] = {}
    usable = ~np.isnan(history.low) & ~np.isnan(history.high)
    for row in np.flatnonzero(usable).tolist():
        key = history.shas[row] or int(history.run_ids[row])
        low, high = float(history.low[row]), float(history.high[row])
        known = ends.get(key, (low, high))
        ends[key] = (min(low, known[0]), max(high, known[1]))
    return [ends.get(point.sha or point.run_id, (point.value, point.value)) for point in points]


def levels_of(series: Series) -> tuple[tuple[str, float], ...]:
    """Return the reference levels of a series: speed of light, and the predicted time of tuned software."""
    bound, predicted = bound_of(series), prediction_of(series)
    levels = [("speed of light", bound.time_s)] if bound else []
    return (*levels, *([("predicted", predicted.time_s)] if predicted else []))
