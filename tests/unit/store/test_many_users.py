"""Several processes at once: each makes, upgrades, fills and judges a store as if it were alone, and none fails."""

import multiprocessing
import os
from dataclasses import replace

import pytest
from sqlalchemy import select
from tests.unit.store.records import random_run
from tests.unit.store.test_upgrade import old_store

from nearpeak.errors import SpecError
from nearpeak.farm.device_registry import heartbeat
from nearpeak.history.regression_groups import regressed, save_regressions
from nearpeak.history.series_tracks import track_of
from nearpeak.store import Detector, StoredChange, maintenance, newest_runs, open_store
from nearpeak.store.rows.policy_rows import Baseline
from nearpeak.store.sql_dialect import writing
from nearpeak.store.table_schema import TABLES

COUNT = 8


def at_once(work, count=COUNT):
    """Call `work` with 0, 1, … in as many processes that begin together; return the answers."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(count), context.SimpleQueue()

    def body(number):
        barrier.wait(60)
        answers.put(work(number))

    processes = [context.Process(target=body, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * count
    return [answers.get() for _ in range(count)]


def test_eight_first_users_make_one_store_and_number_its_runs(place):
    def first_use(number):
        both = [random_run(number), *(random_run(100 + other) for other in range(3))]
        with open_store(place, create=True) as store:
            for record in both if number % 2 else both[::-1]:
                store.ingest(replace(record, revision=random_run(0).revision))

    at_once(first_use)
    with open_store(place) as store:
        assert store.info()["run"] == COUNT + 3
        keys = [run.order_key for run in store.runs()]
        assert len(set(keys)) == len(keys), "runs of one commit have numbers of their own"
        table = TABLES["series"]
        query = select(table.c.id, table.c.last_run_id, table.c.previous_run_id).order_by(table.c.id)
        with writing(store.engine, store.name) as connection:
            kept = connection.execute(query).all()
            newest_runs.refresh(connection)
            assert connection.execute(query).all() == kept


def test_runs_that_come_in_opposite_orders_wait_for_each_other(place):
    open_store(place, create=True).close()
    records = [random_run(other, cases=6) for other in range(6)]

    def ingest(number):
        with open_store(place) as store:
            store.ingest_all(records if number % 2 else records[::-1])

    at_once(ingest, 4)
    with open_store(place) as store:
        assert store.info()["run"] == 6


def test_upgrades_at_once_are_one(place):
    old_store(place, "0003")
    answers = at_once(lambda _: maintenance.upgrade(place)[:2], 4)
    assert answers.count(("0003", "0006")) == 1
    assert set(answers) <= {("0003", "0006"), ("0006", "0006")}
    with open_store(place) as store:
        assert list(maintenance.check(store.engine, store.name)) == []
        assert store.info()["run"] == 3


def test_names_signs_of_life_and_changes_are_written_by_whoever_comes_last(place):
    with open_store(place, create=True) as store:
        store.ingest(random_run(0))

    def write(number):
        with open_store(place) as store:
            for step in range(10):
                store.policies.set_baseline(Baseline(name="good", kind="commit", selector=str(number)))
                heartbeat(store, "local", {"number": number})
                change = StoredChange(
                    series=1, order_key=step, rev_lo="a", rev_hi="b", effect_ratio=0.1, low_ratio=0.0, high_ratio=0.2,
                    score_ratio=1.0, tier="suspect", before_count=1, after_count=1,
                )  # fmt: skip
                store.findings.record_changes(1, Detector(name="d", version="1"), [change])

    at_once(write, 4)
    with open_store(place) as store:
        assert list(store.policies.baselines()) == ["good"]
        assert len(store.findings.changes(retracted=True)) == 10


def test_a_regression_that_several_find_at_once_is_one_alert(place):
    with open_store(place, create=True) as store:
        store.ingest_all([_doubled(number) for number in range(40)])

    def save(_):
        with open_store(place) as store:
            tracks = [track_of(store, series.id) for series in store.series()]
            save_regressions(store, tracks, regressed(tracks))

    at_once(save, 4)
    with open_store(place) as store:
        assert len(store.findings.alerts()) == 1


def _doubled(number):
    """Return a run that takes twice as long from the twentieth commit on."""
    record = random_run(number)
    scale = 2.0 if number >= 20 else 1.0
    sets = [replace(samples, values=[value * scale for value in samples.values]) for samples in record.samples]
    return replace(record, samples=tuple(sets))


def test_a_backup_never_replaces_one_that_appeared_meanwhile(tmp_path, monkeypatch):
    place = str(tmp_path / "a.db")
    with open_store(place, create=True) as store:
        store.ingest(random_run(0))
    target = tmp_path / "copy.db"

    def appears(*_):
        target.write_text("another one")
        return (("ok",),)

    monkeypatch.setattr(maintenance, "pragma", appears)
    with pytest.raises(SpecError, match="exists already; a backup replaces nothing"):
        maintenance.backup(place, target)
    assert target.read_text() == "another one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "copy.db"]


def test_without_hard_links_of_several_makers_one_gives_the_store_its_name(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")  # what vfat answers

    monkeypatch.setattr(os, "link", refuse)
    with open_store(tmp_path / "a.db", create=True) as store:
        assert store.ingest(random_run(0)).new
    with open_store(tmp_path / "a.db", create=True) as store:
        assert store.info()["run"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    assert maintenance.backup(str(tmp_path / "a.db"), tmp_path / "b.db").stat().st_size
