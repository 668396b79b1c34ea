"""Series as charts: full ones with bound and prediction, small ones in a grid."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nearpeak.core.history import Series
from nearpeak.core.track import TrackPoint
from nearpeak.history.points import points_of
from nearpeak.history.standing import bound_of, prediction_of
from nearpeak.store import History
from nearpeak.store.found import StoredChange
from nearpeak.web._chart import Chart, chart_of, marks_of
from nearpeak.web._site import Site
from nearpeak.web._words import where


def small_charts(
    site: Site, series: Iterable[Series], changes: Mapping[int, Sequence[StoredChange]] | None = None
) -> tuple[Chart, ...]:
    """Return a small chart of each series, with the changes that are stored.

    Args:
        changes: those, where they are at hand.
    """
    found = tuple(series)
    if changes is None:
        changes = changes_by_series(site, [one.id for one in found])
    histories = site.store.browsing.histories(found) if found else ()
    return tuple(_small(one, changes.get(one.series.id, ())) for one in histories)


def changes_by_series(site: Site, series: Sequence[int]) -> Mapping[int, tuple[StoredChange, ...]]:
    """Return the stored changes of some series."""
    found: dict[int, tuple[StoredChange, ...]] = {}
    for one in site.store.browsing.changes(series=series) if series else ():
        found[one.series] = (*found.get(one.series, ()), one)
    return found


def _small(history: History, changes: Sequence[StoredChange]) -> Chart:
    one, points = history.series, points_of(history)
    return chart_of(
        f"series{one.id}", f"{one.label}, {where(one)}", one.metric.unit, points, intervals_of(history, points),
        marks=marks_of(changes, points, one.metric.direction), is_small=True,
    )  # fmt: skip


def intervals_of(history: History, points: Sequence[TrackPoint]) -> list[tuple[float, float]]:
    """Return, for each point, the span of the 95 % intervals of its launches; its value where none is known."""
    ends: dict[object, tuple[float, float]] = {}
    usable = ~np.isnan(history.low) & ~np.isnan(history.high)
    for row in np.flatnonzero(usable).tolist():
        key = history.shas[row] or int(history.run_ids[row])
        low, high = float(history.low[row]), float(history.high[row])
        known = ends.get(key, (low, high))
        ends[key] = (min(low, known[0]), max(high, known[1]))
    return [ends.get(one.sha or one.run_id, (one.value, one.value)) for one in points]


def levels_of(one: Series) -> tuple[tuple[str, float], ...]:
    """Return the levels that a series is compared with: speed of light, and what is expected of good software."""
    bound, predicted = bound_of(one), prediction_of(one)
    found = [("speed of light", bound.time_s)] if bound else []
    return (*found, *([("predicted", predicted.time_s)] if predicted else []))
