"""Rows of policies: suppressions, expectations, baselines, gates, and messages that were sent."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, insert, select

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.alert_group import Expectation, Suppression
from nearpeak.core.history.gate import GateLine, GatePolicy, GateResult
from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import SpecError
from nearpeak.store.rows.record_columns import Columns
from nearpeak.store.rows.row_identity import new_uid
from nearpeak.store.sql_dialect import put_row, reading, writing
from nearpeak.store.table_schema import TABLES

_T = TABLES
BASELINE_KINDS = ("tag", "commit", "rolling", "theory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Something by a name that runs are compared with."""

    name: str
    """Name."""
    kind: str
    """`tag`, `commit`, `rolling` or `theory`."""
    selector: str
    """Tag, full name of the commit, length of the window, or share of the bound."""


_SUPPRESSION = Columns(Suppression, texts=("selector",))
_EXPECTATION = Columns(Expectation, {"low_ratio": "low", "high_ratio": "high"}, texts=("selector",))
_BASELINE = Columns(Baseline)
_GATES = Codec()


class Policies:
    """Agreements and decisions of a store."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def suppress(self, suppression: Suppression) -> None:
        """Keep a suppression.

        Raises:
            SpecError: it is over already.
        """
        now_ns = time.time_ns()
        if suppression.until_ns <= now_ns:
            raise SpecError("suppression: needs a reason and an end that lies ahead")
        self._add("suppression", _SUPPRESSION.row(suppression) | {"created_ns": now_ns, "uid": new_uid()})

    def suppressions(self, at_ns: int | None = None) -> tuple[Suppression, ...]:
        """Return the suppressions that hold at a time, by default now."""
        at_ns = time.time_ns() if at_ns is None else at_ns
        return tuple(_SUPPRESSION.value(row) for row in self._rows("suppression") if row["until_ns"] > at_ns)

    def expect(self, expectation: Expectation) -> None:
        """Keep an expectation."""
        self._add("expectation", _EXPECTATION.row(expectation) | {"created_ns": time.time_ns(), "uid": new_uid()})

    def expectations(self, sha: str | None = None) -> tuple[Expectation, ...]:
        """Return the expectations, of a commit or all."""
        return tuple(_EXPECTATION.value(row) for row in self._rows("expectation") if sha in (None, row["sha"]))

    def set_baseline(self, baseline: Baseline) -> None:
        """Give a baseline a name, or the name another baseline.

        Raises:
            SpecError: there is no such kind.
        """
        if baseline.kind not in BASELINE_KINDS:
            raise SpecError(
                f"baseline {baseline.name}: kind {baseline.kind!r} is not known; there are {', '.join(BASELINE_KINDS)}"
            )
        table = _T["baseline"]
        row = _BASELINE.row(baseline) | {"created_ns": time.time_ns()}
        with writing(self._engine, self._name) as connection:
            put_row(connection, table, row, ["name"], kept=["created_ns"])

    def baselines(self) -> dict[str, Baseline]:
        """Return the baselines by name."""
        return {row["name"]: _BASELINE.value(row) for row in self._rows("baseline")}

    def record_gate(self, gate: GateResult) -> None:
        """Store the decision of a gate, with everything that it rests on."""
        policy = _GATES.plain(gate.policy)
        self._add("gate", {
            "run_group": gate.revision, "policy_hash": digest([policy["name"], policy["rules"]]),
            "verdict": gate.verdict, "exit_code": gate.exit_code,
            "counts": canonical_json(Counter(line.verdict for line in gate.lines)),
            "result": canonical_json({"policy": policy, "lines": _GATES.plain(gate.lines, tuple[GateLine, ...])}),
            "created_ns": time.time_ns(), "uid": new_uid(),
        })  # fmt: skip

    def gates(self, revision: str | None = None) -> tuple[GateResult, ...]:
        """Return the decisions of gates, oldest first: of one revision, or all."""
        return tuple(_gate(row) for row in self._rows("gate") if revision in (None, row["run_group"]))

    def _add(self, table: str, row: Mapping[str, Any]) -> None:
        with writing(self._engine, self._name) as connection:
            connection.execute(insert(_T[table]).values(dict(row)))

    def _rows(self, table: str) -> list[Mapping[str, Any]]:
        with reading(self._engine, self._name) as connection:
            return [dict(row) for row in connection.execute(select(_T[table]).order_by(_T[table].c.id)).mappings()]


def _gate(row: Mapping[str, Any]) -> GateResult:
    result = json.loads(row["result"])
    policy = {"name": "", "source": "", "rules": []} | result.get("policy", {})
    return GateResult(
        policy=_GATES.value(policy, GatePolicy, "gate.policy"), revision=row["run_group"], verdict=row["verdict"],
        exit_code=row["exit_code"], lines=_GATES.value(result["lines"], tuple[GateLine, ...], "gate.lines"),
    )  # fmt: skip
