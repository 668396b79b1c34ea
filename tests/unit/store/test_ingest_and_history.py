"""What goes into a store comes out of it: histories in the order of commits, samples to the bit, each run once."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.store.records import BYTES, ENERGY, TESTBED, contents, random_run, run, samples

from nearpeak.core.history.stored_run import Device, Metric, Revision, Source, Testbed
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store import open_store
from nearpeak.store.run_ingest import summaries
from nearpeak.store.table_schema import SUMMARIES


def test_a_history_is_in_the_order_of_commits_whatever_the_order_of_import(store):
    for number in (3, 0, 2, 1):
        store.ingest(run(number, [samples(values=[1.0 + number] * 3)]))
    (series,) = store.series()
    history = store.history(series.id)
    assert history.median.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert history.positions.tolist() == [0, 1, 2, 3]
    assert [int(sha, 16) for sha in history.shas] == [0, 1, 2, 3]
    assert series.run_count == len(history) == 4


def test_samples_come_back_to_the_bit_in_the_order_of_their_taking(store):
    times_s = np.random.default_rng(0).lognormal(-7, 0.3, 101)
    done = store.ingest(run(sets=[samples(values=times_s, channels={"warmup_s": [0.5, 0.25], "power_w": [301.0]})]))
    series = done.series_ids[0]
    assert store.samples(done.id, series).tobytes() == times_s.astype("<f4").tobytes()
    assert store.samples(done.id, series, channel="warmup_s").tolist() == [0.5, 0.25]
    assert store.samples(done.id, series, channel="power_w").dtype == np.float64


def test_integers_beyond_a_float32_are_kept_exactly(store):
    values = [16_777_217, (1 << 53) + 1]
    done = store.ingest(run(sets=[samples(values=values, metric=BYTES)]))
    assert store.samples(done.id, done.series_ids[0]).tolist() == values


def test_summaries_are_those_of_the_stored_samples_to_the_bit(store):
    sets = [samples(f"c{place}", np.random.default_rng(place).random(1 + place % 7) + 0.1) for place in range(40)]
    done = store.ingest(run(sets=sets))
    for place, series in enumerate(done.series_ids):
        kept = store.samples(done.id, series)
        again, history = summaries(kept[None, :]), store.history(series)
        assert all(again[name][0] == getattr(history, name)[0] for name in SUMMARIES), place


def test_the_same_source_is_imported_once_and_changes_nothing(store):
    first = store.ingest(random_run(0))
    before = contents(store)
    renamed = random_run(0)
    second = store.ingest(renamed)
    assert (second.uid, second.new, first.new) == (first.uid, False, True)
    assert contents(store) == before


def test_a_source_that_is_imported_again_on_purpose_replaces_its_run(store):
    store.ingest(run(0, [samples(values=[1.0])]))
    for value in (2.0, 3.0):
        store.ingest(run(0, [samples(values=[value])]), again=True)
    store.ingest(run(1, [samples(values=[4.0])]))
    assert store.history(1).median.tolist() == [3.0, 4.0]
    assert [one.previous_value for one in store.latest_against_previous()] == [3.0]
    assert store.info()["run"] == 4, "a superseded run is marked, never deleted"


def test_the_latest_values_are_the_two_newest_by_history_of_every_series(store):
    for number in (5, 1, 7, 3):
        sets = [samples("always", [float(number)]), *([samples("rare", [float(number)])] if number in (1, 7) else [])]
        store.ingest(run(number, sets))
    found = {store.series(id=one.series)[0].case: one for one in store.latest_against_previous()}
    assert (found["always"].value, found["always"].previous_value) == (7.0, 5.0)
    assert (found["rare"].value, found["rare"].previous_value, found["rare"].ratio) == (7.0, 1.0, 7.0)


def test_a_run_of_several_launches_counts_as_their_median(store):
    store.ingest(run(0, [samples(values=[1.0])]))
    store.ingest(run(1, [samples(values=[value], launch=place) for place, value in enumerate((9.0, 2.0, 3.0))]))
    (latest,) = store.latest_against_previous()
    assert latest.value == 3.0
    assert store.history(1).launches.tolist() == [0, 0, 1, 2]


def test_a_failed_measurement_is_a_row_without_values_and_no_latest_value(store):
    store.ingest(run(0))
    store.ingest(run(1))
    store.ingest(run(2, [samples(values=(), outcome="crash", note="signal 11")]))
    history = store.history(1)
    assert history.outcomes[-1] == "crash"
    assert np.isnan(history.median[-1])
    assert store.latest_against_previous()[0].run == 2
    with pytest.raises(NotFoundError, match="no samples"):
        store.samples(3, 1)


def test_what_is_not_comparable_is_another_series_and_a_new_library_is_not(store):
    store.ingest(run(0, [samples(), samples(metric=ENERGY)]))
    cold = dataclasses.replace(samples(), testbed=Testbed(name="torch_cpu", policy={}))
    store.ingest(run(1, [samples(), cold], stack=(("torch", "3.0"),)))
    store.ingest(run(2, branch="side"))
    store.ingest(run(3, track=(("cuda", "13"),)))
    assert [one.run_count for one in store.series(metric="time", branch="main", testbed="torch_cpu")] == [2, 1, 1]
    assert len(store.series()) == 5


def test_a_metric_in_two_units_is_refused_and_nothing_is_written(store):
    store.ingest(run(0))
    before = contents(store)
    other = samples("new", [1.0], metric=Metric(name="time", unit="J"))
    with pytest.raises(SpecError, match=r"metric time: the store has it in s .* this run in J"):
        store.ingest(run(1, [other]))
    assert contents(store) == before
    assert store.info()["revision"] == 1


def test_of_several_runs_all_are_written_or_none(store):
    store.ingest(run(0))
    wrong = run(2, [samples(values=[1.0], metric=Metric(name="time", unit="B"))])
    with pytest.raises(SpecError, match="one unit"):
        store.ingest_all([run(1), wrong])
    assert store.info()["run"] == 1


def test_a_commit_outside_the_known_history_is_refused_by_name(store):
    store.ingest(run(4))
    with pytest.raises(SpecError, match="commit feedbeef: is not in the history of r"):
        store.ingest(run(5, revision=Revision(sha="feedbeef", repository="r")))
    with pytest.raises(SpecError, match="stands at position 9 of its history, in the store at 4"):
        store.ingest(run(6, revision=Revision(sha=f"{4:040x}", repository="r", position=9)))
    assert store.info()["run"] == 1


def test_runs_without_a_history_are_in_the_order_of_time(store):
    for number, time_ns in ((0, 300), (1, 100), (2, 200)):
        record = run(
            number, [samples(values=[float(time_ns)])], revision=Revision(sha=f"s{number}", committed_ns=time_ns)
        )
        store.ingest(record)
    assert store.history(1).median.tolist() == [100.0, 200.0, 300.0]
    assert store.history(1).positions.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, float("nan")], "nan is not finite"),
        ([float("inf")], "inf is not finite"),
        ([1e300], "not finite"),
        ([2**63], "64 bits"),
        ([2**64], "64 bits"),
        (["a"], "numbers of 64 bits"),
    ],
)
def test_samples_that_no_column_holds_are_refused_on_both_engines(store, values, words):
    metric = BYTES if isinstance(values[0], int) else samples().metric
    with pytest.raises(SpecError, match=words):
        store.ingest(run(sets=[samples(values=values, metric=metric)]))
    assert store.info()["run"] == 0


def test_extreme_texts_and_counts_are_kept(store):
    name = "🚀 " + "x" * 10_000
    done = store.ingest(run(sets=[samples(name, [1.5]), samples("limits", [-(2**63), 2**63 - 1], metric=BYTES)]))
    assert store.series(case=name)[0].run_count == 1
    assert store.samples(done.id, done.series_ids[1]).tolist() == [-(2**63), 2**63 - 1]
    with pytest.raises(SpecError, match="NUL"):
        store.ingest(run(1, [samples("a\x00b")]))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.lists(st.floats(2**-30, 1000, width=32), min_size=1, max_size=9), min_size=1, max_size=6))
def test_any_run_comes_back_as_it_was_given(tmp_path_factory, data):
    with open_store(tmp_path_factory.mktemp("s") / "a.db", create=True) as store:
        done = store.ingest(run(sets=[samples(f"c{place}", values) for place, values in enumerate(data)]))
        for series, values in zip(done.series_ids, data, strict=True):
            kept = store.samples(done.id, series)
            assert kept.tolist() == values
            assert store.history(series).least[0] == min(values)


def test_runs_tell_where_they_ran_and_what_was_lost(store):
    source = Source(digest="d", name="a.json", lost=("machine_info",))
    store.ingest(run(0, source=source, trigger="nightly", facts={"preflight": "ok"}))
    (found,) = store.runs()
    assert (found.device, found.lost, found.trigger) == (Device(name="H200", host="a"), ("machine_info",), "nightly")
    assert found.revision.position == 0
    assert store.series()[0].testbed == TESTBED
