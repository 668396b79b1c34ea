"""Copies rows between stores: matches rows by identity, renumbers keys, and refuses rows that contradict each other."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, insert, select, tuple_
from sqlalchemy.exc import DBAPIError

from nearpeak.base.canonical_json import digest
from nearpeak.errors import StoreError
from nearpeak.store.run_ingest import PLACE_BITS
from nearpeak.store.sql_dialect import insert_new
from nearpeak.store.table_schema import TABLES

_T = TABLES
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "repo": ("url",), "host": ("name",), "device_model": ("name",), "stack": ("fingerprint",), "workload": ("name",),
    "metric": ("name",), "testbed": ("fingerprint",), "test_case": ("case_digest",), "revision": ("repo_id", "sha"),
    "device": ("device_model_id", "uuid", "mig_profile", "host_id"), "series": ("fingerprint",), "detector": ("hash",),
}  # fmt: skip
"""Tables of what facts refer to, each after those that it refers to itself, with what identifies a row."""
FINDINGS: dict[str, tuple[str, ...]] = {
    "change_point": ("series_id", "detector_id", "order_key"), "comparison": ("uid",), "alert": ("uid",),
    "suppression": ("uid",), "expectation": ("uid",), "baseline": ("name",), "gate": ("uid",),
    "notification": ("target", "external_id"), "bisect": ("uid",), "bridge": ("uid",),
}  # fmt: skip
"""Tables of findings, likewise."""
_MEMBERS = {"alert_member": ("alert_id", "change_point_id"), "bisect_step": ("bisect_id", "step")}
"""Tables of parts of findings, likewise."""
_CHUNK = 500


class Copier:
    """Copies from one open transaction into another."""

    def __init__(self, source: Connection, target: Connection, *, tolerant: bool = False) -> None:
        """Keep where rows are read and where they are written.

        Args:
            tolerant: rows that cannot be read, or that refer to such rows, are left out.
        """
        self.source, self.target, self._tolerant = source, target, tolerant
        self.maps: dict[str, dict[int, int]] = {"run": {}}

    def dimensions(self) -> None:
        """Copy everything that facts refer to; what is there already stays as it is.

        Raises:
            StoreError: the stores have a metric in different units, or a commit at different places.
        """
        for table, unique in DIMENSIONS.items():
            self._copy(table, unique)
        components = [
            row for component in self._rows("stack_component") if (row := self._known("stack_component", component))
        ]
        insert_new(self.target, _T["stack_component"], components, ["stack_id", "name"])
        self._agree("metric", "name", ("unit", "direction"))
        self._agree("revision", "sha", ("fp_pos",))

    def run(self, run: int) -> bool:
        """Copy a run with its measurements and samples; say whether it was not there.

        Raises:
            StoreError: the target holds another run of that identity.
        """
        table = _T["run"]
        row = dict(self.source.execute(select(table).where(table.c.id == run)).mappings().one())
        there = self.target.execute(select(table.c.id).where(table.c.uid == row["uid"])).scalar()
        if there is not None:
            if content(self.source, run) != content(self.target, there):
                raise StoreError(
                    f"run {row['uid']}: the two stores hold different runs of that identity; nothing was merged"
                )
            self.maps["run"][run] = there
            return False
        del row["id"]
        row = self._mapped("run", row | {"superseded_by": None})
        new = int(self.target.execute(insert(table).values(row).returning(table.c.id)).scalar_one())
        self._copy_sets(run, new)
        self.maps["run"][run] = new
        return True

    def superseded(self) -> None:
        """Mark in the target what was replaced in the source."""
        r = _T["run"]
        runs = self.maps["run"]
        for run, later in ((row["id"], row["superseded_by"]) for row in self._rows("run")):
            if run in runs and later in runs:
                self.target.execute(r.update().where(r.c.id == runs[run]).values(superseded_by=runs[later]))

    def findings(self) -> None:
        """Copy what was found in series; alerts with their events."""
        for table, unique in FINDINGS.items():
            self._copy(table, unique)
        for table, unique in _MEMBERS.items():
            rows = [self._mapped(table, dict(row)) for row in self._rows(table)]
            insert_new(self.target, _T[table], rows, unique)
        for table in ("alert_event", "attribution", "artifact"):
            self._copy_log(table)

    def _rows(self, table: str) -> Sequence[RowMapping]:
        if self._tolerant:
            return readable_rows(self.source, _T[table])
        return self.source.execute(select(_T[table])).mappings().all()

    def _copy(self, table: str, unique: Sequence[str]) -> None:
        """Copy the rows of a table that has numbers, and remember which became which."""
        rows = [
            (int(row["id"]), mapped) for row in self._rows(table) if (mapped := self._known(table, row)) is not None
        ]
        for _, row in rows:
            del row["id"]
            row.update({name: None for name in ("last_run_id", "previous_run_id") if name in row})
        insert_new(self.target, _T[table], [row for _, row in rows], unique)
        columns, numbers = [_T[table].c[name] for name in unique], self.maps.setdefault(table, {})
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            wanted = [tuple(row[name] for name in unique) for _, row in part]
            query = select(_T[table].c.id, *columns).where(tuple_(*columns).in_(wanted))
            there = {tuple(key): number for number, *key in self.target.execute(query)}
            numbers.update({number: there[key] for (number, _), key in zip(part, wanted, strict=True)})

    def _known(self, table: str, row: RowMapping) -> dict[str, Any] | None:
        """Return a row with references of the target; none where it refers to what could not be read."""
        try:
            return self._mapped(table, dict(row))
        except KeyError:
            if self._tolerant:
                return None
            raise

    def _mapped(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row whose references are those of the target."""
        for column in _T[table].columns:
            for reference in column.foreign_keys:
                other = reference.column.table.name
                if row[column.name] is not None and other in self.maps:
                    row[column.name] = self.maps[other][row[column.name]]
        return row

    def _copy_sets(self, run: int, new: int) -> None:
        m, b, c, r = (_T[name] for name in ("measurement", "sample_blob", "channel_blob", "record_blob"))
        shift = (new - run) << PLACE_BITS
        series = self.maps["series"]
        for table in (m, c, r):
            rows = [
                dict(row) | {"run_id": new, "series_id": series[row["series_id"]]}
                for row in self.source.execute(select(table).where(table.c.run_id == run)).mappings()
            ]
            for row in rows:
                if row.get("sample_id") is not None:
                    row["sample_id"] += shift
            if rows:
                self.target.execute(insert(table), rows)
        within = (b.c.id >= run << PLACE_BITS) & (b.c.id < (run + 1) << PLACE_BITS)
        blobs = [
            dict(row) | {"id": row["id"] + shift} for row in self.source.execute(select(b).where(within)).mappings()
        ]
        if blobs:
            self.target.execute(insert(b), blobs)

    def _copy_log(self, table: str) -> None:
        """Copy rows that have no identity of their own; those that are there already are known by all they say."""
        rows = [self._mapped(table, dict(row)) for row in self._rows(table)]
        there = {_row_digest(row) for row in map(dict, self.target.execute(select(_T[table])).mappings())}
        new = [
            {name: value for name, value in row.items() if name != "id"}
            for row in rows
            if _row_digest(row) not in there
        ]
        if new:
            self.target.execute(insert(_T[table]), new)

    def _agree(self, table: str, name: str, columns: Iterable[str]) -> None:
        there = {row["id"]: row for row in self.target.execute(select(_T[table])).mappings()}
        for row in self._rows(table):
            if row["id"] not in self.maps[table]:
                continue
            other = there[self.maps[table][row["id"]]]
            for column in columns:
                if row[column] != other[column]:
                    raise StoreError(
                        f"{table} {row[name]}: {column} is {row[column]} in one store and {other[column]} in the other;"
                        " nothing was merged"
                    )


def readable_rows(connection: Connection, table: Table) -> list[RowMapping]:
    """Return the rows of a table that may be damaged: from both ends up to the page that cannot be read."""
    columns = list(table.primary_key.columns)
    rows: dict[tuple[Any, ...], RowMapping] = {}
    for order in (columns, [column.desc() for column in columns]):
        with suppress(DBAPIError, sqlite3.Error):
            for row in connection.execute(select(table).order_by(*order)).mappings():
                rows[tuple(row[column.name] for column in columns)] = row
    return [rows[key] for key in sorted(rows)]


def content(connection: Connection, run: int) -> str:
    """Return the digest of all that must agree where two stores hold a run of one identity."""
    r, m, s = _T["run"].c, _T["measurement"].c, _T["series"].c
    head = connection.execute(
        select(_T["stack"].c.fingerprint, _T["revision"].c.sha, r.started_ns, r.branch, r.run_trigger)
        .join_from(_T["run"], _T["stack"], _T["stack"].c.id == r.stack_id)
        .outerjoin(_T["revision"], _T["revision"].c.id == r.revision_id)
        .where(r.id == run)
    ).one()
    sets = connection.execute(
        select(s.fingerprint, m.launch, m.n, m.outcome, m.median, m.q1, m.q3, m.least)
        .join_from(_T["measurement"], _T["series"], s.id == m.series_id)
        .where(m.run_id == run)
        .order_by(s.fingerprint, m.launch)
    ).all()
    return digest([list(head), [[repr(value) for value in row] for row in sets]])


def _row_digest(row: Mapping[str, Any]) -> str:
    return digest({name: value for name, value in row.items() if name != "id"})
