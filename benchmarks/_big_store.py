"""A store as large as the dashboard must carry: 10^7 samples, 2,000 series, 50,000 change points, 5,000 alerts."""

import math
from pathlib import Path

import numpy as np
from sqlalchemy import insert, select

from benchmarks.store import RUNS, SAMPLES, SERIES, ingest_s
from nearpeak.store import Store, open_store
from nearpeak.store.rows.finding_rows import Detector
from nearpeak.store.rows.row_identity import new_uid
from nearpeak.store.sql_dialect import writing
from nearpeak.store.table_schema import TABLES

CHANGES_EACH, MEMBERS = 25, 10
"""Change points of a series; of an alert."""


def big_store(path: Path) -> Path:
    """Make the store at `path`, if it is not there yet, and return the path."""
    if path.exists():
        return path
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with open_store(part, create=True) as store:
        for number in range(RUNS):
            ingest_s(store, number)
        _add_findings(store)
        info = store.info()
        assert (info["series"], info["change_point"]) == (SERIES, SERIES * CHANGES_EACH)
        assert RUNS * SERIES * SAMPLES == 10**7
    part.rename(path)
    return path


def _add_findings(store: Store) -> None:
    """Add change points and alerts over them, by hand: searching is not what is measured."""
    store.findings.record_changes(1, Detector(name="made up"), ())
    draw = np.random.default_rng(1)
    effects = np.exp(draw.normal(0.03, 0.02, SERIES * CHANGES_EACH)).tolist()
    runs = store.runs()
    with writing(store.engine, store.name) as connection:
        detector = connection.execute(select(TABLES["detector"].c.id)).scalar_one()
        changes = [
            _change(series, detector, runs[2 + 3 * place], runs[1 + 3 * place], effects[series * 25 - 25 + place])
            for place in range(CHANGES_EACH) for series in range(1, SERIES + 1)
        ]  # fmt: skip
        connection.execute(insert(TABLES["change_point"]), changes)
        alerts = range(1, len(changes) // MEMBERS + 1)
        connection.execute(insert(TABLES["alert"]), [_alert(number) for number in alerts])
        connection.execute(insert(TABLES["alert_member"]), [
            {"alert_id": 1 + number // MEMBERS, "change_point_id": 1 + number,
             "role": "related" if number % MEMBERS else "primary"}
            for number in range(len(changes))
        ])  # fmt: skip
        connection.execute(insert(TABLES["alert_event"]), [
            {"alert_id": number, "at_ns": number, "actor": "nearpeak", "from_status": "", "to_status": "new",
             "note": ""}
            for number in alerts
        ])  # fmt: skip


def _change(series: int, detector: int, bad: object, good: object, effect: float) -> dict[str, object]:
    log = math.log(effect)
    return {
        "uid": new_uid(), "series_id": series, "detector_id": detector, "order_key": bad.order_key,  # type: ignore[attr-defined]
        "rev_lo": good.revision.sha, "rev_hi": bad.revision.sha, "effect": log, "low": log - 0.01,  # type: ignore[attr-defined]
        "high": log + 0.01, "score": 0.99, "tier": "confirmed", "n_before": 10, "n_after": 10, "first_seen_ns": 1,
        "last_seen_ns": 1, "retracted_ns": None, "evidence": "{}",
    }  # fmt: skip


def _alert(number: int) -> dict[str, object]:
    return {
        "uid": new_uid(), "title": f"10 series worse: commit {number}", "rev_lo": f"{number:040x}",
        "rev_hi": f"{number + 1:040x}", "stack_from": "", "stack_to": "", "status": "new", "assignee": "",
        "priority": 3, "tracker_url": "", "created_ns": number * 10**12,
    }  # fmt: skip
