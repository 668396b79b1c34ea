"""What was blamed and how culprits were searched for is kept, so that a search that was stopped can go on."""

import time

import pytest
from tests.unit.store.records import run, samples

from nearpeak.core.history.bridge import Bridge
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store.rows.investigation_rows import Attribution, BisectStep


def test_what_an_alert_is_blamed_on_is_kept_with_its_evidence(store):
    alert = store.findings.open_alert("slower", {})
    one = Attribution(alert=alert, axis="component", what="torch", before="2.8", after="2.9", score_ratio=0.99,
                      method="bisect", evidence={"runs": [1, 2]})  # fmt: skip
    store.investigations.record_attribution(one)
    assert store.investigations.attributions(alert) == (one,)
    with pytest.raises(SpecError, match="axis 'moon' is not known"):
        store.investigations.record_attribution(Attribution(alert=alert, axis="moon", what=""))


def test_a_stopped_search_goes_on_from_the_steps_that_are_there(store):
    search = store.investigations.start_bisect("commit", "a", "z")
    step = BisectStep(candidate="m", verdict="bad", evidence={"effect": 0.05})
    assert store.investigations.add_step(search, 0, step)
    assert not store.investigations.add_step(search, 0, BisectStep(candidate="n", verdict="good"))
    assert store.investigations.bisect(search).steps == (step,)
    store.investigations.end_bisect(search, "done", {"culprit": "m"})
    found = store.investigations.bisect(search)
    assert (found.state, found.result, found.good) == ("done", {"culprit": "m"}, "a")
    with pytest.raises(NotFoundError, match="bisect 9"):
        store.investigations.bisect(9)
    with pytest.raises(NotFoundError, match="bisect 9"):
        store.investigations.end_bisect(9, "failed", {})
    with pytest.raises(SpecError, match="verdict 'maybe'"):
        store.investigations.add_step(search, 1, BisectStep(candidate="m", verdict="maybe"))


def test_a_clock_that_was_set_back_leaves_the_newest_bridge_the_newest(store, monkeypatch):
    store.ingest(run(0, [samples("a"), samples("b")]))
    for day, ratio in ((2, 1.1), (1, 1.2)):
        monkeypatch.setattr(time, "time_ns", lambda day=day: day * 86_400 * 10**9)
        store.investigations.record_bridge(Bridge(
            old_series=1, new_series=2, sha="a", verdict="regression", time_ratio=ratio, low_ratio=ratio,
            high_ratio=ratio, launch_count=2, differences=(),
        ))  # fmt: skip
    assert store.investigations.bridges()[2].time_ratio == pytest.approx(1.2)
