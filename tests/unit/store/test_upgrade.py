"""Stores of every earlier schema, made anew here, come to the present one with all of their rows."""

import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import inspect
from tests.unit.store.records import contents, random_run

from nearpeak.errors import SchemaVersionError, StoreError
from nearpeak.store import Findings, maintenance, open_store
from nearpeak.store.run_ingest import add_run, prepared
from nearpeak.store.schema_versions import migrate, version_of
from nearpeak.store.sql_dialect import engine_of, name_of, reading, store_url, writing
from nearpeak.store.store_check import _fill, make_at
from nearpeak.store.table_schema import HEAD, METADATA, TABLES, VERSIONS

EARLIER = [version.revision for version in VERSIONS[:-1]]


def old_store(place, version):
    """Make a store of an earlier schema, with three runs and, where it has them, an alert."""
    url = store_url(place)
    if url.drivername == "sqlite":
        make_at(url.database, version)
    engine = engine_of(url)
    with writing(engine, place) as connection:
        if url.drivername != "sqlite":
            _fill(connection, version)
        for number in range(3):
            add_run(connection, prepared(random_run(number)), {})
    if version >= "0002":
        Findings(engine, name_of(url)).open_alert("old", {})
    engine.dispose()


@pytest.mark.parametrize("version", EARLIER)
def test_every_earlier_schema_is_upgraded_with_all_of_its_rows(make_place, version):
    place, fresh = make_place(), make_place()
    old_store(place, version)
    with pytest.raises(SchemaVersionError, match=f"schema {version} is older"):
        open_store(place)
    before, after, copy = maintenance.upgrade(place)
    assert (before, after) == (version, HEAD)
    with open_store(place) as store, open_store(fresh, create=True) as other:
        for number in range(3):
            other.ingest(random_run(number))
        assert contents(store) == contents(other)
        assert len(store.findings.alerts()) == (version >= "0002")
        assert list(maintenance.check(store.engine, store.name)) == []
        assert store.ingest(random_run(3)).new
    if "://" not in place:
        with sqlite3.connect(copy) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (version,)
    assert maintenance.upgrade(place)[2] == "", "a second upgrade changes nothing"


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(place, monkeypatch):
    old_store(place, "0001")

    def broken(connection, *_):
        migrate(connection)
        raise StoreError("the machine stumbled")

    monkeypatch.setattr(maintenance, "migrate", broken)
    with pytest.raises(StoreError, match="stumbled"):
        maintenance.upgrade(place)
    engine = engine_of(store_url(place))
    with reading(engine, place) as connection:
        assert version_of(connection) == "0001"
        assert not inspect(connection).has_table("alert")
    engine.dispose()


def test_an_upgrade_that_would_lose_rows_is_undone(place, monkeypatch):
    old_store(place, "0002")

    def losing(connection, *_):
        migrate(connection)
        connection.execute(TABLES["sample_blob"].delete())

    monkeypatch.setattr(maintenance, "migrate", losing)
    with pytest.raises(StoreError, match="would lose rows of sample_blob; nothing was changed"):
        maintenance.upgrade(place)
    monkeypatch.undo()
    assert maintenance.upgrade(place)[0] == "0002"


def test_an_upgrade_that_is_killed_leaves_the_store_as_it_was(place):
    old_store(place, "0001")
    code = (
        "import os, sys; from nearpeak.store import maintenance\n"
        "maintenance._check_upgraded = lambda *_: os.kill(os.getpid(), 9)\n"
        "maintenance.upgrade(sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, place], check=False).returncode == -9
    assert maintenance.upgrade(place)[0] == "0001"
    with open_store(place) as store:
        assert store.info()["run"] == 3


def test_a_newer_store_is_not_upgraded_downwards(store, place):
    with writing(store.engine, store.name) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaVersionError, match="newer"):
        maintenance.upgrade(place)


def test_migrations_make_exactly_the_tables_that_are_declared(store):
    with reading(store.engine, store.name) as connection:
        found = inspect(connection)
        names = set(found.get_table_names()) - {"alembic_version"}
        assert names == set(METADATA.tables)
        for name in names:
            assert {column["name"] for column in found.get_columns(name)} == set(TABLES[name].c.keys())
    assert [version.down_revision for version in VERSIONS] == [None, *EARLIER], "history is linear"
