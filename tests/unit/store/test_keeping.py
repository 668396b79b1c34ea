"""Copies, merging, export and retention: what is copied is the same, what is removed was archived and read back."""

import csv
import json
import stat

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.store.records import contents, random_run, run, samples

from nearpeak.core.history.stored_run import Metric, Source
from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.store import Detector, StoredChange, maintenance, open_store
from nearpeak.store.retention import plan, retain
from nearpeak.store.store_merge import merge, replace_positions
from nearpeak.store.table_export import MANIFEST, export, read_samples, verify

DAY_NS = 86_400 * 10**9


def filled(place, numbers):
    store = open_store(place, create=True)
    store.ingest_all([random_run(number) for number in numbers])
    return store


def test_a_backup_is_the_store_at_one_moment(tmp_path):
    with filled(tmp_path / "a.db", range(3)) as store:
        copy = maintenance.backup(str(tmp_path / "a.db"), tmp_path / "b.db")
        before = contents(store)
        store.ingest(random_run(9))
        with open_store(copy) as other:
            assert contents(other) == before
    with pytest.raises(SpecError, match="exists already"):
        maintenance.backup(str(tmp_path / "a.db"), copy)


def test_a_new_store_is_its_owners_and_a_backup_as_open_as_the_store(tmp_path):
    with filled(tmp_path / "a.db", range(1)):
        assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600
        for mode in (0o600, 0o660):
            (tmp_path / "a.db").chmod(mode)
            copy = maintenance.backup(str(tmp_path / "a.db"), tmp_path / f"{mode}.db")
            assert stat.S_IMODE(copy.stat().st_mode) == mode


def test_no_cell_of_an_export_is_a_formula(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as store:
        store.ingest(run(1, [samples("=1+1", [1e-3])]))
        export(store, tmp_path / "out", form="csv")
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "out").rglob("*.csv")]
    assert any("'=1+1" in text for text in texts)
    assert not any(cell.startswith("=") for text in texts for row in csv.reader(text.splitlines()) for cell in row)


def test_merging_gives_the_same_whatever_the_order_and_however_often(make_place):
    places = [make_place() for _ in range(4)]
    first, second = filled(places[0], (0, 2, 3)), filled(places[1], (1, 3, 2))
    left, right = open_store(places[2], create=True), open_store(places[3], create=True)
    assert [merge(one, left) for one in (first, second, first, second)] == [3, 1, 0, 0]
    assert [merge(one, right) for one in (second, first)] == [3, 1]
    assert contents(left) == contents(right)
    with filled(make_place(), range(4)) as whole:
        assert contents(left) == contents(whole)
        assert latest(left) == latest(whole)
    assert list(maintenance.check(left.engine, left.name)) == []
    for store in (first, second, left, right):
        store.close()


def test_findings_are_merged_with_their_alerts_and_events(make_place):
    one, other = filled(make_place(), (0, 1)), filled(make_place(), (5, 1))
    change = StoredChange(series=1, order_key=1 << 20, rev_lo="a", rev_hi="b", effect_ratio=0.1)
    (point,) = one.findings.record_changes(1, Detector(name="r1"), [change])
    alert = one.findings.open_alert("slower", {point.id: "primary"})
    one.findings.move_alert(alert, "active", actor="me")
    for _ in range(2):
        merge(one, other)
    (found,) = other.findings.alerts()
    (copied,) = other.findings.changes()
    assert (found.status, found.members) == ("active", ((copied.id, "primary"),))
    assert other.series(id=copied.series)[0].fingerprint == one.series(id=1)[0].fingerprint
    assert [event.to_status for event in other.findings.events(found.id)] == ["new", "active"]
    one.close()
    other.close()


def test_stores_that_contradict_each_other_are_not_merged(make_place):
    one, other = filled(make_place(), (0,)), open_store(make_place(), create=True)
    other.ingest(run(0, [samples(values=[9.0])]))
    before = contents(other)
    with pytest.raises(StoreError, match="different runs of that identity; nothing was merged"):
        merge(one, other)
    third = open_store(make_place(), create=True)
    third.ingest(run(8, [samples(values=[1.0], metric=Metric(name="time", unit="J"))], source=Source(digest="x")))
    with pytest.raises(StoreError, match="metric time: unit is"):
        merge(third, other)
    assert contents(other) == before
    for store in (one, other, third):
        store.close()


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_holds_every_sample_to_the_bit(store, tmp_path, form):
    if form == "parquet":
        pytest.importorskip("duckdb")
    store.ingest_all([random_run(number) for number in range(3)])
    store.ingest(run(7, [samples("failed", (), outcome="crash")]))
    found = export(store, tmp_path / "out", form=form)
    back = read_samples(tmp_path / "out")
    assert len(back) == 12
    for (run_id, series, launch), values in back.items():
        assert np.array_equal(values, store.samples(run_id, series, launch).astype(np.float64))
    assert found.rows_count["sample"] == 240 == verify(tmp_path / "out")["sample"]
    assert found.rows_count["measurement"] == 13
    with pytest.raises(SpecError, match="exists already"):
        export(store, tmp_path / "out")


def test_an_archive_that_was_touched_is_not_trusted(tmp_path):
    with filled(tmp_path / "a.db", range(2)) as store:
        export(store, tmp_path / "out", form="csv")
    part = tmp_path / "out" / "table=sample" / "part-0.csv"
    part.write_text(part.read_text().replace("0.0", "0.1", 1))
    with pytest.raises(StoreError, match="not what was written"):
        verify(tmp_path / "out")
    part.unlink()
    with pytest.raises(StoreError, match="is missing"):
        verify(tmp_path / "out")
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["schema"]


def test_only_old_samples_that_nothing_needs_are_removed_after_they_were_archived(store, tmp_path):
    store.ingest_all([random_run(100 * number) for number in range(4)])
    change = StoredChange(series=1, order_key=310 << 20, rev_lo="a", rev_hi="b", effect_ratio=0.1)
    store.findings.record_changes(1, Detector(name="r1"), [change])
    before, after_ns, medians = contents(store), 1000 + 90 * DAY_NS, store.history(1).median.tolist()
    assert plan(store, 90, now_ns=90 * DAY_NS).runs == ()
    planned = plan(store, 90, now_ns=after_ns)
    assert (planned.runs, planned.kept_count, planned.sets_count, planned.data_bytes) == ((1, 2, 3), 1, 12, 960)
    assert contents(store) == before, "a plan changes nothing"
    done = retain(store, planned, tmp_path / "archive")
    assert len(read_samples(done.archive)) == 12
    assert store.history(1).median.tolist() == medians
    with pytest.raises(NotFoundError, match="archived"):
        store.samples(1, 1)
    assert len(store.samples(4, 1)) == 20
    assert list(maintenance.check(store.engine, store.name)) == []
    assert plan(store, 90, now_ns=after_ns).runs == ()
    assert not store.ingest(random_run(0)).new


def test_nothing_is_removed_when_the_archive_cannot_be_written(store, tmp_path):
    store.ingest(random_run(0))
    (tmp_path / "archive").mkdir()
    with pytest.raises(SpecError, match="exists already"):
        retain(store, plan(store, 90), tmp_path / "archive")
    assert len(store.samples(1, 1)) == 20


def test_a_rewritten_history_orders_all_runs_again(store):
    records = [run(number, [samples(values=[float(number + 1)])]) for number in range(3)]
    store.ingest_all(records)
    moved = [
        one.revision.__class__(sha=one.revision.sha, repository="r", position=2 - place)
        for place, one in enumerate(records)
    ]
    assert replace_positions(store, moved) == 2
    assert store.history(1).median.tolist() == [3.0, 2.0, 1.0]
    assert store.latest_against_previous()[0].value == 1.0


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(split=st.lists(st.sampled_from("ab+"), min_size=1, max_size=6))
def test_any_two_parts_of_a_history_merge_into_the_whole(tmp_path_factory, split):
    folder = tmp_path_factory.mktemp("m")
    parts = {name: [place for place, where in enumerate(split) if where in (name, "+")] for name in "ab"}
    stores = {name: filled(folder / f"{name}.db", numbers) for name, numbers in parts.items()}
    with filled(folder / "whole.db", range(len(split))) as whole:
        merge(stores["a"], stores["b"])
        assert contents(stores["b"]) == contents(whole)
    for store in stores.values():
        store.close()


def latest(store):
    """The latest changes by the identity that series have in every store."""
    return {store.series(id=one.series)[0].fingerprint: one.ratio for one in store.latest_against_previous()}
