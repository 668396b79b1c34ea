"""Suspected causes: what one series alone shows is no evidence, nor what an unmeasured series did not show."""

import pytest

from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.core.history.track import Regressed
from nearpeak.history.regression_groups import cause_of, regressed
from nearpeak.history.series_tracks import track_of
from nearpeak.judgement.change_causes import co_moved
from nearpeak.store import open_store


def run(position, device, value):
    sample = SampleSet(case="c", label="case", metric=TIME, testbed=Testbed(name="b"), values=(value,) * 3)
    return RunRecord(
        device=Device(name=device), samples=(sample,), source=Source(digest=f"{device} {position}"),
        revision=Revision(sha=f"{position:040d}", repository="r", position=position, subject="Tune"),
        started_ns=position,
    )  # fmt: skip


@pytest.mark.parametrize(("last_of_b", "evidence"), [(60, [("device", "only on a")]), (30, [])])
def test_a_device_without_values_after_the_change_is_no_evidence(tmp_path, last_of_b, evidence):
    with open_store(tmp_path / "s.db", create=True) as store:
        runs = [run(place, "a", (1.1 if place >= 40 else 1.0) + 0.001 * (place % 3)) for place in range(60)]
        runs += [run(place, "b", 1.0 + 0.001 * (place % 3)) for place in range(last_of_b)]
        store.ingest_all(runs)
        (group,) = regressed([track_of(store, series.id) for series in store.series()])
    assert list(group.suspects) == [*evidence, ("commit", "Tune")]
    assert cause_of(group) == ("only on a: Tune" if evidence else "Tune")


def test_one_series_that_shifted_shares_nothing():
    axes = {f"s{number}": {"operator": "rare" if number < 2 else "gemm"} for number in range(400)}
    assert co_moved(axes, ["s0"]) == ()
    assert [one.value for one in co_moved(axes, ["s0", "s1"])] == ["rare"]
    # A value that one of the shifted carries alone is its own, however rare it is.
    alone = {name: {"operator": "sole" if name == "s0" else "gemm"} for name in axes}
    assert co_moved(alone, ["s0", "s9"]) == ()


def test_a_title_follows_the_likeliest_cause_and_names_all_that_are_as_likely():
    group = {"good_sha": "a", "bad_sha": "b", "subject": "Tune", "changes": ()}
    components = tuple(("component", f"{name} 1 → 2") for name in "pqrs")
    assert cause_of(Regressed(**group, suspects=components)) == "p 1 → 2 or q 1 → 2 or 2 more"
    assert cause_of(Regressed(**group, suspects=(("clock", "-9 %"), *components))) == "clock -9 %"
    assert cause_of(Regressed(**group, suspects=(("operator", "4 of 4 …"), ("commit", "Tune")))) == "Tune"
