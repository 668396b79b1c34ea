"""Kills, full disks, damage, two writers, files that are no store: nothing is lost that was acknowledged."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.store_faults import kills, two_writers
from sqlalchemy import event
from tests.unit.store.records import contents, random_run, run, samples

from nearpeak.errors import NotFoundError, SchemaVersionError, SpecError, StoreError
from nearpeak.store import open_store
from nearpeak.store.maintenance import check, salvage
from nearpeak.store.sql_dialect import writing
from nearpeak.store.sqlite_connection import PAGE_BYTES


@pytest.fixture
def file(tmp_path):
    """A closed store of twelve runs."""
    path = tmp_path / "a.db"
    with open_store(path, create=True) as store:
        for number in range(12):
            store.ingest(random_run(number, count=500))
    return path


def flip(path, place, count=1):
    with path.open("r+b") as opened:
        opened.seek(place)
        old = opened.read(count)
        opened.seek(place)
        opened.write(bytes(byte ^ 0xFF for byte in old))


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged():
    assert kills(5, seed=1) == 0


@pytest.mark.slow
def test_two_writers_lose_nothing_and_neither_fails():
    missing, longest_s = two_writers(40)
    assert missing == 0
    assert longest_s < 5


@pytest.mark.slow
def test_importing_the_same_file_twice_at_once_gives_one_run(place):
    open_store(place, create=True).close()
    code = (
        "import sys; from tests.unit.store.records import random_run; from nearpeak.store import open_store\n"
        "with open_store(sys.argv[1]) as store:\n    print(store.ingest(random_run(0)).new)"
    )
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join([root, *(one for one in sys.path if one)])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, place], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        for _ in range(2)
    ]
    answers = sorted(process.communicate()[0].decode().strip() for process in both)
    assert answers == ["False", "True"]
    with open_store(place) as store:
        assert (store.info()["run"], store.info()["series"]) == (1, 4)


def test_a_full_disk_refuses_the_whole_run_and_the_next_write_works(file):
    with open_store(file) as store:
        before = contents(store)
        pages = file.stat().st_size // PAGE_BYTES + 2

        @event.listens_for(store.engine, "checkout")
        def _narrow(connection, *_):
            connection.execute(f"PRAGMA max_page_count={pages}")

        with pytest.raises(StoreError, match=r"no space left; nothing was written.* \(it takes about \d+ bytes"):
            store.ingest(random_run(50, cases=40, count=4000))
        assert contents(store) == before
        pages = 1 << 30
        assert store.ingest(random_run(50)).new


def test_a_flipped_bit_in_samples_is_found_and_the_rest_is_usable(file):
    with open_store(file) as store:
        blob = store.samples(3, 1).tobytes()
    flip(file, file.read_bytes().index(blob) + 100)
    with open_store(file) as store:
        with pytest.raises(StoreError, match="samples are damaged on disk"):
            store.samples(3, 1)
        assert len(store.samples(4, 1)) == 500
        (fault,) = check(store.engine, store.name)
        assert "run 3, series 1" in fault
        with sqlite3.connect(file) as connection:
            assert connection.execute("SELECT run_id, series_id FROM measurement WHERE flags = 1").fetchall() == [
                (3, 1)
            ]


@pytest.mark.parametrize("part", ["header", "first page", "middle page", "cut"])
def test_a_damaged_file_is_refused_or_named_and_salvage_saves_the_readable_runs(file, tmp_path, part):
    with open_store(file) as store:
        before = contents(store)
    size = file.stat().st_size
    pages = size // PAGE_BYTES
    if part == "cut":
        os.truncate(file, (pages - 3) * PAGE_BYTES)
    else:
        flip(file, {"header": 0, "first page": 100, "middle page": (pages - 12) * PAGE_BYTES}[part], 40)
    with pytest.raises(StoreError, match=r"damaged|is cut|no store") as caught, open_store(file) as store:
        contents(store)
    assert "\n" not in str(caught.value)
    if part == "first page":
        with pytest.raises(StoreError, match="nothing can be read of it"):
            salvage(str(file), tmp_path / "saved.db")
        return
    count, lost = salvage(str(file), tmp_path / "saved.db")
    with open_store(tmp_path / "saved.db") as store:
        after = contents(store)
    assert count + len(lost) >= 12
    assert count >= 8
    assert all(before[key] == value for key, value in after.items())
    assert len(after) == 4 * count


def test_the_log_beside_a_file_may_be_lost_with_its_commits_but_not_the_file(tmp_path):
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with open_store(path, create=True) as store:
        store.ingest(random_run(0))
        shutil.copy(path, copy)  # the main file alone, as a careless copy would take it
    with open_store(copy) as store:
        assert store.info()["run"] == 0


def test_what_is_no_store_is_refused_in_one_line_and_nothing_is_made(tmp_path):
    text, empty, other, cut = (tmp_path / name for name in ("text", "empty", "other.db", "cut"))
    text.write_text("hello " * 100)
    empty.touch()
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE a (b)")
    cut.write_bytes(b"SQLite format 3\x00")
    before = sorted(tmp_path.iterdir())
    for path, words in (
        (text, "not an SQLite file"), (empty, "is empty"), (other, "a database of something else"),
        (tmp_path, "is a folder"), (cut, "not an SQLite file"), (tmp_path / "none" / "a.db", "folder does not exist"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match=words) as caught:
            open_store(path, create=True)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(NotFoundError, match="there is no store"):
        open_store(tmp_path / "none.db")
    with pytest.raises(SpecError, match="is neither a file nor"):
        open_store("mysql://host/name")
    assert sorted(tmp_path.iterdir()) == before


def test_a_newer_schema_is_refused_and_an_older_one_names_the_command(store, place):
    with writing(store.engine, store.name) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaVersionError, match="schema 9999 is newer"):
        open_store(place)
    with writing(store.engine, store.name) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(SchemaVersionError, match="nearpeak store upgrade --store"):
        open_store(place, create=True)


def test_a_clock_that_was_set_back_changes_no_order(store):
    store.ingest(run(1, [samples(values=[1.0])]))
    late = run(2, [samples(values=[2.0])])
    store.ingest(late.__class__(**{name: getattr(late, name) for name in late.__slots__} | {"started_ns": -(10**12)}))
    assert store.history(1).median.tolist() == [1.0, 2.0]
    with pytest.raises(SpecError, match="ends 5 ns before it begins"):
        run(3, ended_ns=-2)


@pytest.mark.slow
def test_a_restarted_postgresql_loses_nothing_and_the_store_goes_on(postgresql):
    with open_store(postgresql.place(), create=True) as store:
        store.ingest(random_run(0))
        postgresql.stop()
        with pytest.raises(StoreError, match="cannot be reached"):
            store.ingest(random_run(1))
        postgresql.start()
        assert store.ingest(random_run(1)).new
        assert not store.ingest(random_run(0)).new
        assert store.info()["run"] == 2


def test_a_password_never_shows_and_is_refused_on_the_command_line(monkeypatch):
    from nearpeak.store.store_check import place_of

    place = "postgresql+psycopg://me:secret@127.0.0.1:1/x"
    with pytest.raises(SpecError, match="holds a password") as caught:
        place_of(place)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("NEARPEAK_STORE", place)
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        open_store(place_of(None))
    assert "secret" not in str(caught.value)
