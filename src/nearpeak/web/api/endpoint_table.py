"""All API endpoints: reads of series, runs and alerts; uploads of runs; actions on alerts."""

import math
from dataclasses import asdict
from typing import Any

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.exchange.run_lines import MOST_BYTES, parse_run
from nearpeak.history.alert_queue import SORTS, AlertFilter
from nearpeak.history.alert_triage import ACTIONS, NOTHING, Weight, act, weights_of
from nearpeak.history.commit_points import points_of
from nearpeak.history.series_state import bound_of, prediction_of
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web.api import schemas
from nearpeak.web.api.endpoint import Endpoint, Question
from nearpeak.web.pages.all_series import CHOICES
from nearpeak.web.pages.triage import queue_of
from nearpeak.web.series_charts import intervals_of
from nearpeak.web.site import Site, alert_of, series_of

MOST = 1000
MOST_RUNS = 200
PAGING = {"limit": f"#rows, at most {MOST}", "offset": "#rows before them"}


def _part(question: Question) -> tuple[int, int]:
    return min(question.query.number("limit", 100), MOST), question.query.number("offset", most=1 << 40)


def _info(site: Site, _: Question) -> tuple[int, Any]:
    return 200, site.store.info()


def _series_list(site: Site, question: Question) -> tuple[int, Any]:
    limit, offset = _part(question)
    where = {name: value for name in CHOICES if (value := question.query.text(name))}
    part = site.store.browsing.series(question.query.words(), where, limit=limit, offset=offset)
    return 200, {"series": [_series(series) for series in part.rows], "total": part.total_count}


def _series(series: Series) -> dict[str, Any]:
    record = asdict(series)
    del record["run_count"]
    return record


def _series_one(site: Site, question: Question) -> tuple[int, Any]:
    return 200, _series(series_of(site.store, question.query.id("series")))


def _history(site: Site, question: Question) -> tuple[int, Any]:
    series = series_of(site.store, question.query.id("series"))
    history = site.store.history(series.id)
    points = points_of(history)
    bound, predicted = bound_of(series), prediction_of(series)
    return 200, {
        "series": _series(series), "bound": bound.time_s if bound else None,
        "predicted": predicted.time_s if predicted else None,
        "points": [
            {"sha": point.sha, "position": point.position, "order_key": point.order_key, "run": point.run_id,
             "value": point.value, "low": low, "high": high, "launches": len(point.values)}
            for point, (low, high) in zip(points, intervals_of(history, points), strict=True)
        ],
        "changes": [
            {"order_key": series.order_key, "rev_lo": series.rev_lo, "rev_hi": series.rev_hi, "tier": series.tier,
             "ratio": math.exp(series.effect_ratio), "low_ratio": _exp(series.low_ratio),
             "high_ratio": _exp(series.high_ratio)}
            for series in site.store.browsing.changes(series=[series.id])
        ],
    }  # fmt: skip


def _exp(log: float | None) -> float | None:
    return None if log is None else math.exp(log)


def _runs(site: Site, question: Question) -> tuple[int, Any]:
    limit, offset = _part(question)
    runs, total = site.store.browsing.runs(question.query.words(), limit=limit, offset=offset)
    return 200, {"runs": [asdict(run) for run in runs], "total": total}


def _run(site: Site, question: Question) -> tuple[int, Any]:
    number = question.query.id("run")
    runs = site.store.runs([number])
    if not runs:
        raise NotFoundError(f"run {number}: is not in the store")
    part = site.store.browsing.measurements(number, limit=MOST)
    return 200, asdict(runs[0]) | {
        "measurements": [asdict(measurement) for measurement in part.rows],
        "total": part.total_count,
    }


def _alerts(site: Site, question: Question) -> tuple[int, Any]:
    limit, offset = _part(question)
    shown = question.query.choice("shown", ("open", "closed", "all"))
    sort = question.query.choice("sort", SORTS)
    alerts = queue_of(site).wanted(AlertFilter(shown=shown, sort=sort, words=question.query.words()))
    rows = site.store.browsing.alerts(alerts[offset : offset + limit])
    known = weights_of(site.store.browsing.members([alert.id for alert in rows]))
    return 200, {"alerts": [_alert(known.get(alert.id, NOTHING), alert) for alert in rows], "total": len(alerts)}


def _alert(weight: Weight, alert: AlertRow) -> dict[str, Any]:
    return asdict(alert) | {
        "change_count": weight.change_count,
        "worst_ratio": weight.worst_ratio,
        "gap_s": weight.gap_s,
    }


def _alert_one(site: Site, question: Question) -> tuple[int, Any]:
    number = question.query.id("alert")
    alert = alert_of(site.store, number)
    members = site.store.browsing.member_roles(number)
    return 200, _alert(weights_of(site.store.browsing.members([number])).get(number, NOTHING), alert) | {
        "events": [asdict(item) for item in site.store.findings.events(number)],
        "series": sorted({item.series for item in site.store.browsing.changes(ids=[item for item, _ in members])}),
    }  # fmt: skip


def _act(site: Site, question: Question) -> tuple[int, Any]:
    number, body = question.query.id("alert"), question.body
    if not isinstance(body, dict):
        raise SpecError("body: is not an object")
    texts = {name: body.get(name, "") for name in ("action", "note", "assignee")}
    days = body.get("days", 7)
    if not all(isinstance(text, str) for text in texts.values()) or isinstance(days, bool) or not isinstance(days, int):
        raise SpecError("body: action, note and assignee are texts, days is a whole number")
    if not -1000 < days < 1000:
        raise SpecError("days: is out of range")
    status = act(site.store, number, texts["action"], actor=question.visitor.name, note=texts["note"],
                 assignee=texts["assignee"], days=days)  # fmt: skip
    return 200, {"alert": number, "status": status}


def _send(site: Site, question: Question) -> tuple[int, Any]:
    """Write runs, all or none; the answer goes out after they are committed."""
    body = question.body
    items = body.get("runs") if isinstance(body, dict) else None
    if not isinstance(items, list) or not 0 < len(items) <= MOST_RUNS or len(body) != 1:
        raise SpecError(f"body: is not an object with 'runs', a list of 1 to {MOST_RUNS}")
    done = site.store.ingest_all([parse_run(item) for item in items], sender=question.visitor.name)
    rows = [{"id": item.id, "uid": item.uid, "new": item.new} for item in done]
    return (201 if any(item.new for item in done) else 200), {"runs": rows}


_CHOSEN = {name: f"only series of this {name}" for name in CHOICES}
_ANY: dict[str, Any] = {"type": "object"}
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(method="GET", path="/info", name="info", summary="Return what the store holds.", answer=_info, gives=_ANY),
    Endpoint(method="GET", path="/series", name="series", summary="Return series whose texts hold all words.",
             answer=_series_list, gives=schemas.page_of(schemas.SERIES, "series"),
             query={"q": "words", **_CHOSEN, **PAGING}),
    Endpoint(method="GET", path="/series/{series}", name="oneSeries", summary="Return one series.",
             answer=_series_one, gives=schemas.SERIES, statuses=(200, 400, 404)),
    Endpoint(method="GET", path="/series/{series}/history", name="history",
             summary="Return the values of a series with changes, bound and prediction.", answer=_history,
             gives=schemas.HISTORY, statuses=(200, 400, 404)),
    Endpoint(method="GET", path="/runs", name="runs", summary="Return runs, newest first.", answer=_runs,
             gives=schemas.page_of(_ANY, "runs"), query={"q": "words", **PAGING}),
    Endpoint(method="POST", path="/runs", name="sendRuns", writes=True, most_bytes=MOST_BYTES,
             statuses=(200, 201, 400, 413, 415), answer=_send,
             summary="Send runs; one that is there already stays. Answered when they are committed.",
             gives=schemas.TAKEN, takes=schemas.RUNS),
    Endpoint(method="GET", path="/runs/{run}", name="oneRun", summary="Return one run with its measurements.",
             answer=_run, gives=_ANY, statuses=(200, 400, 404)),
    Endpoint(method="GET", path="/alerts", name="alerts", summary="Return alerts, the costliest first.",
             answer=_alerts, gives=schemas.page_of(schemas.ALERT, "alerts"),
             query={"q": "words", "shown": "open, closed or all", "sort": "gap, age or owner", **PAGING}),
    Endpoint(method="GET", path="/alerts/{alert}", name="oneAlert", summary="Return one alert with its events.",
             answer=_alert_one, gives=schemas.ALERT, statuses=(200, 400, 404)),
    Endpoint(method="POST", path="/alerts/{alert}/actions", name="act", writes=True,
             statuses=(200, 400, 404, 413, 415), summary=f"Act on an alert: {', '.join(ACTIONS)}.", answer=_act,
             gives=schemas.fields(alert=schemas.WHOLE, status=schemas.TEXT), takes=schemas.ACTION),
)  # fmt: skip
