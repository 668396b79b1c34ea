"""Rows of root-cause investigations: suspects with evidence, bisection steps, bridges between series keys."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, func, insert, select, update

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.history.bridge import Bridge
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store.rows.record_columns import Columns
from nearpeak.store.rows.row_identity import new_uid
from nearpeak.store.sql_dialect import claim, reading, writing
from nearpeak.store.table_schema import TABLES

_T = TABLES
Json = Mapping[str, Any]
AXES = ("commit", "component", "driver", "device", "host", "clock", "input")
STEP_VERDICTS = ("good", "bad", "skip", "ambiguous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One thing that an alert is blamed on."""

    alert: int
    """Identity of the alert."""
    axis: str
    """`commit`, `component`, `driver`, `device`, `host`, `clock` or `input`."""
    what: str
    """Name of the component, or full hash of the commit."""
    before: str = ""
    """Its value on the good side."""
    after: str = ""
    """Its value on the bad side."""
    score_ratio: float | None = None
    """How sure, on the method's own scale."""
    method: str = ""
    """`bisect`, `ab_matrix` or `diff`."""
    evidence: Json = field(default_factory=dict)
    """What it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """One candidate of a search, and what was seen of it."""

    candidate: str
    """Revision, or values on several axes."""
    verdict: str
    """`good`, `bad`, `skip` or `ambiguous`."""
    evidence: Json = field(default_factory=dict)
    """Runs, effect, what is believed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisect:
    """A search for a culprit."""

    axis: str
    """What is searched."""
    good: str
    """Last known good."""
    bad: str
    """First known bad."""
    state: str
    """`running`, `done` or `failed`."""
    result: Json
    """What was found; empty before."""
    steps: tuple[BisectStep, ...]
    """Steps, in order."""


_ATTRIBUTION = Columns(Attribution, {"alert": "alert_id", "score_ratio": "score"}, texts=("evidence",))
_STEP = Columns(BisectStep, texts=("evidence",))
_BISECT = Columns(Bisect, texts=("result",), omitted=("steps",))


class Investigations:
    """Attributions and searches of a store."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def record_attribution(self, attribution: Attribution) -> None:
        """Keep what an alert is blamed on."""
        _one_of("attribution: axis", attribution.axis, AXES)
        row = _ATTRIBUTION.row(attribution) | {"created_ns": time.time_ns()}
        with writing(self._engine, self._name) as connection:
            connection.execute(insert(_T["attribution"]).values(row))

    def attributions(self, alert: int) -> tuple[Attribution, ...]:
        """Return what an alert is blamed on, oldest first."""
        c = _T["attribution"].c
        with reading(self._engine, self._name) as connection:
            rows = (
                connection.execute(select(_T["attribution"]).where(c.alert_id == alert).order_by(c.id)).mappings().all()
            )
        return tuple(map(_ATTRIBUTION.value, rows))

    def start_bisect(self, axis: str, good: str, bad: str, *, alert: int | None = None) -> int:
        """Begin a search and return its identity."""
        row = {
            "uid": new_uid(), "alert_id": alert, "axis": axis, "good": good, "bad": bad, "state": "running",
            "result": "{}", "created_ns": time.time_ns(),
        }  # fmt: skip
        with writing(self._engine, self._name) as connection:
            return int(connection.execute(insert(_T["bisect"]).values(row).returning(_T["bisect"].c.id)).scalar_one())

    def add_step(self, bisect: int, number: int, step: BisectStep) -> bool:
        """Keep step `number`; say whether it was new: a search that was stopped goes on from what is there."""
        _one_of("bisect: verdict", step.verdict, STEP_VERDICTS)
        row = _STEP.row(step) | {"bisect_id": bisect, "step": number}
        with writing(self._engine, self._name) as connection:
            claim(connection, f"bisect {bisect}")
            s = _T["bisect_step"].c
            there = select(s.step).where(s.bisect_id == bisect, s.step == number)
            if connection.execute(there).first() is not None:
                return False
            connection.execute(insert(_T["bisect_step"]).values(row))
            return True

    def end_bisect(self, bisect: int, state: str, result: Json) -> None:
        """Keep how a search ended."""
        _one_of("bisect: state", state, ("done", "failed"))
        table = _T["bisect"]
        with writing(self._engine, self._name) as connection:
            changed = update(table).where(table.c.id == bisect).values(state=state, result=canonical_json(dict(result)))
            if not connection.execute(changed).rowcount:
                raise NotFoundError(f"bisect {bisect}: is not in the store")

    def record_bridge(self, bridge: Bridge) -> None:
        """Keep what a change of the key did; an earlier bridge of the same series stays, and no longer counts."""
        row = {
            "uid": new_uid(), "old_series_id": bridge.old_series, "new_series_id": bridge.new_series, "sha": bridge.sha,
            "verdict": bridge.verdict, "effect": math.log(bridge.time_ratio), "low": math.log(bridge.low_ratio),
            "high": math.log(bridge.high_ratio), "launches": bridge.launch_count,
            "differences": canonical_json([list(row) for row in bridge.differences]),
        }  # fmt: skip
        with writing(self._engine, self._name) as connection:
            claim(connection, "bridges")
            newest_ns = connection.execute(select(func.max(_T["bridge"].c.created_ns))).scalar() or 0
            created_ns = max(time.time_ns(), newest_ns + 1)  # a clock that was set back makes no bridge an older one
            connection.execute(insert(_T["bridge"]).values({**row, "created_ns": created_ns}))

    def bridges(self) -> dict[int, Bridge]:
        """Return the newest bridge of each series that has one, by the series of the new key."""
        b = _T["bridge"]
        with reading(self._engine, self._name) as connection:
            rows = connection.execute(select(b).order_by(b.c.created_ns, b.c.id)).mappings().all()
        return {
            row["new_series_id"]: Bridge(
                old_series=row["old_series_id"], new_series=row["new_series_id"], sha=row["sha"],
                verdict=row["verdict"], time_ratio=math.exp(row["effect"]), low_ratio=math.exp(row["low"]),
                high_ratio=math.exp(row["high"]), launch_count=row["launches"], created_ns=row["created_ns"],
                differences=tuple((name, old, new) for name, old, new in json.loads(row["differences"])),
            )
            for row in rows
        }  # fmt: skip

    def bisect(self, bisect: int) -> Bisect:
        """Return a search with its steps.

        Raises:
            NotFoundError: there is no such search.
        """
        b, s = _T["bisect"], _T["bisect_step"]
        with reading(self._engine, self._name) as connection:
            row = connection.execute(select(b).where(b.c.id == bisect)).mappings().one_or_none()
            steps = connection.execute(select(s).where(s.c.bisect_id == bisect).order_by(s.c.step)).mappings().all()
        if row is None:
            raise NotFoundError(f"bisect {bisect}: is not in the store")
        return _BISECT.value(row, steps=tuple(map(_STEP.value, steps)))


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(f"{what} {value!r} is not known; there are {', '.join(known)}")
