"""Series on both sides of a change of their key: what it did is measured at one commit, and charged to no commit."""

import pytest

from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.gate.evaluation import gated
from nearpeak.gate.policy_file import policy_of
from nearpeak.history.regression_groups import regressed
from nearpeak.history.series_bridges import bridged
from nearpeak.history.series_tracks import track_of
from nearpeak.store import open_store

SEAM, BRIDGE = 30, 1.10


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as opened:
        yield opened


def measured(store, position, value, driver, *, number=0, case="c", device="d"):
    samples = SampleSet(case=case, label=case, metric=TIME, testbed=Testbed(name="b"), values=(value,))
    store.ingest(
        RunRecord(device=Device(name=device), samples=(samples,), stack=(("driver", driver),),
                  track=(("driver", driver),), source=Source(digest=f"{driver} {position} {number} {case} {device}"),
                  revision=Revision(sha=f"{position:040d}", repository="r", position=position),
                  started_ns=10**9 * (10 * position + number))
    )  # fmt: skip


def value_at(position):
    return 1 + 0.001 * (position % 3)


def filled(store, *, step=1.0):
    """A series of 30 commits under an old driver, 20 under a new one, the commit of the seam under both in turns."""
    for position in range(SEAM):
        measured(store, position, value_at(position), "570")
    for number in range(8):
        driver, factor = ("570", 1.0) if number % 4 in (0, 3) else ("580", BRIDGE)
        measured(store, SEAM, value_at(SEAM) * factor * (1 + 0.0005 * (number % 3)), driver, number=number)
    for position in range(SEAM + 1, SEAM + 20):
        measured(store, position, value_at(position) * BRIDGE * (step if position >= SEAM + 10 else 1.0), "580")
    return store.series(id=1)[0], store.series(id=2)[0]


def test_what_the_key_did_is_measured_and_named(store):
    found = bridged(store, *filled(store))
    assert found.verdict == "regression"
    assert found.low_ratio <= BRIDGE <= found.high_ratio
    assert (found.differences, found.launch_count) == ((("driver", "570", "580"),), 8)
    assert store.investigations.bridges()[2].time_ratio == pytest.approx(found.time_ratio)


def test_the_history_goes_on_and_nobody_is_charged_with_the_key(store):
    series = filled(store)
    assert len(track_of(store, 2).points) == 20
    bridged(store, *series)
    track = track_of(store, 2)
    assert (len(track.points), track.bridges[0][0], track.changes) == (50, 30, ())
    assert track.points[0].value == pytest.approx(value_at(0) * BRIDGE, rel=0.002)
    assert len(track_of(store, 1).points) == 31


def test_a_change_after_the_seam_is_found_once_and_the_gate_judges_across_it(store):
    bridged(store, *filled(store, step=1.05))
    (group,) = regressed([track_of(store, 1), track_of(store, 2)])
    assert [(series.id, one.bad_sha) for series, one in group.changes] == [(2, f"{SEAM + 10:040d}")]
    policy = policy_of("[[rule]]\nname='r'\nbaseline='rolling'\nwindow=20", "gate.toml")
    assert gated(store, policy, revision=f"{SEAM + 3:040d}").verdict == "pass"
    assert gated(store, policy, revision=f"{SEAM + 10:040d}").verdict == "fail"


def test_series_that_are_not_two_keys_of_one_are_refused_and_nothing_is_kept(store):
    old, new = filled(store)
    measured(store, 0, 1.0, "570", case="other")
    measured(store, 0, 1.0, "570", device="other")
    measured(store, 99, 1.0, "590")
    other, elsewhere, lonely = (store.series(id=number)[0] for number in (3, 4, 5))
    for wrong, words in ((other, "differ in their case"), (elsewhere, "differ in their device"), (old, "not two keys")):
        with pytest.raises(SpecError, match=words):
            bridged(store, old, wrong)
    with pytest.raises(NotFoundError, match="share no commit with 2 launches each"):
        bridged(store, new, lonely)
    assert store.investigations.bridges() == {}
