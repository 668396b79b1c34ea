"""What is agreed beforehand or decided afterwards: suppressions, expectations, baselines, gates, messages sent."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, insert, select, update

from nearpeak.canon import canonical_json
from nearpeak.errors import SpecError
from nearpeak.store.dialect import reading, writing
from nearpeak.store.identity import new_uid
from nearpeak.store.schema import TABLES

_T = TABLES
Json = Mapping[str, Any]
BASELINE_KINDS = ("tag", "commit", "rolling", "theory")
VERDICTS = ("pass", "fail", "inconclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """Changes that nobody is to be told of, why, and until when."""

    selector: Json
    """Series that it holds for: fields of `Store.series` with their values; empty for all."""
    until_ns: int
    """End, since 1970 UTC; there is none without."""
    reason: str
    """Why."""
    author: str
    """Who said so."""
    rev_lo: str = ""
    """First commit that it holds for; empty for all."""
    rev_hi: str = ""
    """Last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A change that is meant: a commit, series, and how much."""

    sha: str
    """Commit."""
    selector: Json
    """Series, as in `Suppression`."""
    low_ratio: float
    """Least logarithm of new over old that is as expected."""
    high_ratio: float
    """Largest."""
    author: str
    """Who said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Something by a name that runs are compared with."""

    name: str
    """Name."""
    kind: str
    """`tag`, `commit`, `rolling` or `theory`."""
    selector: str
    """Tag, full name of the commit, length of the window, or share of the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What a gate said, with everything that decided it."""

    run_group: str
    """What was judged."""
    policy_hash: str
    """Policy that it was judged by."""
    verdict: str
    """`pass`, `fail` or `inconclusive`."""
    exit_code: int
    """Exit code of the command."""
    counts: Json
    """Cases by verdict."""
    result: Json
    """All of it."""


class Policies:
    """Agreements and decisions of a store."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def suppress(self, one: Suppression) -> None:
        """Keep a suppression.

        Raises:
            SpecError: it has no reason, or is over already.
        """
        now_ns = time.time_ns()
        if not one.reason.strip() or one.until_ns <= now_ns:
            raise SpecError("suppression: needs a reason and an end that lies ahead")
        self._add("suppression", {
            "selector": canonical_json(dict(one.selector)), "until_ns": one.until_ns, "reason": one.reason,
            "author": one.author, "rev_lo": one.rev_lo, "rev_hi": one.rev_hi, "created_ns": now_ns, "uid": new_uid(),
        })  # fmt: skip

    def suppressions(self, at_ns: int | None = None) -> tuple[Suppression, ...]:
        """Return the suppressions that hold at a time, by default now."""
        at_ns = time.time_ns() if at_ns is None else at_ns
        names = ("until_ns", "reason", "author", "rev_lo", "rev_hi")
        return tuple(
            Suppression(selector=json.loads(row["selector"]), **{name: row[name] for name in names})
            for row in self._rows("suppression") if row["until_ns"] > at_ns
        )  # fmt: skip

    def expect(self, one: Expectation) -> None:
        """Keep an expectation.

        Raises:
            SpecError: its ends are the wrong way round.
        """
        if one.low_ratio > one.high_ratio:
            raise SpecError(f"expectation of {one.sha}: {one.low_ratio} to {one.high_ratio} is the wrong way round")
        self._add("expectation", {
            "sha": one.sha, "selector": canonical_json(dict(one.selector)), "low": one.low_ratio,
            "high": one.high_ratio, "author": one.author, "created_ns": time.time_ns(), "uid": new_uid(),
        })  # fmt: skip

    def expectations(self, sha: str | None = None) -> tuple[Expectation, ...]:
        """Return the expectations, of a commit or all."""
        return tuple(
            Expectation(sha=row["sha"], selector=json.loads(row["selector"]), low_ratio=row["low"],
                        high_ratio=row["high"], author=row["author"])
            for row in self._rows("expectation") if sha in (None, row["sha"])
        )  # fmt: skip

    def set_baseline(self, one: Baseline) -> None:
        """Give a baseline a name, or the name another baseline.

        Raises:
            SpecError: there is no such kind.
        """
        if one.kind not in BASELINE_KINDS:
            raise SpecError(
                f"baseline {one.name}: kind {one.kind!r} is not known; there are {', '.join(BASELINE_KINDS)}"
            )
        table = _T["baseline"]
        row = {"kind": one.kind, "selector": one.selector}
        with writing(self._engine, self._name) as connection:
            if not connection.execute(update(table).where(table.c.name == one.name).values(row)).rowcount:
                connection.execute(insert(table).values(name=one.name, created_ns=time.time_ns(), **row))

    def baselines(self) -> dict[str, Baseline]:
        """Return the baselines by name."""
        return {
            row["name"]: Baseline(name=row["name"], kind=row["kind"], selector=row["selector"])
            for row in self._rows("baseline")
        }

    def record_gate(self, one: GateResult) -> None:
        """Keep what a gate said."""
        if one.verdict not in VERDICTS:
            raise SpecError(f"gate: verdict {one.verdict!r} is not known; there are {', '.join(VERDICTS)}")
        self._add("gate", {
            "run_group": one.run_group, "policy_hash": one.policy_hash, "verdict": one.verdict,
            "exit_code": one.exit_code, "counts": canonical_json(dict(one.counts)),
            "result": canonical_json(dict(one.result)), "created_ns": time.time_ns(), "uid": new_uid(),
        })  # fmt: skip

    def gates(self, run_group: str | None = None) -> tuple[GateResult, ...]:
        """Return what gates said, oldest first: of one group of runs, or all."""
        return tuple(
            GateResult(
                run_group=row["run_group"], policy_hash=row["policy_hash"], verdict=row["verdict"],
                exit_code=row["exit_code"], counts=json.loads(row["counts"]), result=json.loads(row["result"]),
            ) for row in self._rows("gate") if run_group in (None, row["run_group"])
        )  # fmt: skip

    def notification(self, target: str, external_id: str) -> str:
        """Return the digest of what was sent there last; empty where nothing was: then it is sent, else edited."""
        found = [row["body_hash"] for row in self._rows("notification")
                 if (row["target"], row["external_id"]) == (target, external_id)]  # fmt: skip
        return str(found[0]) if found else ""

    def notified(self, target: str, external_id: str, body_hash: str) -> None:
        """Remember what was sent, in place of what was sent there before."""
        table = _T["notification"]
        row = {"body_hash": body_hash, "sent_ns": time.time_ns()}
        there = (table.c.target == target) & (table.c.external_id == external_id)
        with writing(self._engine, self._name) as connection:
            if not connection.execute(update(table).where(there).values(row)).rowcount:
                connection.execute(insert(table).values(target=target, external_id=external_id, **row))

    def _add(self, table: str, row: Mapping[str, Any]) -> None:
        with writing(self._engine, self._name) as connection:
            connection.execute(insert(_T[table]).values(dict(row)))

    def _rows(self, table: str) -> list[Mapping[str, Any]]:
        with reading(self._engine, self._name) as connection:
            return [dict(row) for row in connection.execute(select(_T[table]).order_by(_T[table].c.id)).mappings()]
