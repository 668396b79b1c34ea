"""Lists of people who look around, tokens, and runs given on: the same on every engine."""

from dataclasses import replace

import pytest
from tests.unit.store.records import contents, random_run, run, samples

from nearpeak.core.history.stored_run import Source
from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.history.commit_points import points_of
from nearpeak.store import Detector, StoredChange, open_store
from nearpeak.store.rows.list_rows import AlertRow, MemberRow
from nearpeak.store.rows.row_identity import importer_of
from nearpeak.store.run_replay import records_of


@pytest.fixture
def filled(store):
    store.ingest_all([random_run(number) for number in range(5)])
    (change,) = store.findings.record_changes(
        1, Detector(name="d"), [StoredChange(series=1, order_key=2 << 20, rev_lo="a", rev_hi="b", effect_ratio=0.1)]
    )
    store.findings.open_alert("100 % worse_", {change.id: "primary"}, rev_hi="b")
    return store


def test_series_are_found_by_words_taken_literally(filled):
    look = filled.browsing
    assert [one.label for one in look.series(("C1",)).rows] == ["case c1"]
    assert look.series(("c1", "h200")).total_count == 1
    assert look.series(("%",)).total_count == look.series(("c_",)).total_count == 0
    assert look.series((), {"metric": "time"}, limit=2, offset=1).total_count == 4
    assert [one.id for one in look.series_by_id([3, 99, 1])] == [3, 1]
    assert look.choices()["device"] == ("H200",)
    assert [one[0] for one in look.cases()] == ["c0", "c1", "c2", "c3"]


def test_runs_devices_and_commits_are_listed_newest_first(filled):
    look = filled.browsing
    runs, total = look.runs(limit=2)
    assert ([one.revision.position for one in runs], total) == ([4, 3], 5)
    assert look.runs((f"{3:040x}",))[1] == 1
    assert [one.position for one in filled.commits.newest(3)] == [4, 3, 2]
    assert [(one.name, one.run_count, one.last_ns) for one in look.devices()] == [("H200", 5, 4)]
    assert look.measurements(runs[0].id, limit=3).total_count == 4
    assert [one.id for one in look.runs_at([runs[0].order_key])] == [runs[0].id]


def test_alerts_come_with_what_it_takes_to_weigh_them(filled):
    look = filled.browsing
    (key,) = look.alert_keys()
    assert (key.title, key.status, key.rev_hi) == ("100 % worse_", "new", "b")
    assert look.alert_keys(since_event=look.newest_event()) == ()
    (row,) = look.alerts([key.id, 77])
    assert isinstance(row, AlertRow)
    (member,) = look.members([key.id])
    newest = look.newest([1])[1][1]
    assert member == MemberRow(alert_id=key.id, series=1, role="primary", effect_ratio=0.1, value=newest, unit="s",
                               direction="lower", owner="")  # fmt: skip
    assert look.alerts_of_changes([one for one, _ in look.member_roles(key.id)]) == {1: key.id}
    assert filled.findings.status_of(key.id) == "new"
    effects = look.alert_effects([key.id])
    assert effects[:3] == ((key.id,), (1,), (0.1,))
    assert effects.known == {1: (newest, "")}
    assert look.alert_effects()[:3] == effects[:3]
    before, event = look.mark(), look.newest_event()
    filled.findings.move_alert(key.id, "active", actor="a")
    assert look.mark() != before
    assert [one.status for one in look.alert_keys(since_event=event)] == ["active"]


def test_more_may_be_asked_for_than_an_engine_takes_at_once(filled):
    look, many = filled.browsing, range(1, 70_001)
    assert [one.id for one in look.series_by_id(many)] == [one.id for one in filled.series()]
    assert look.suspects(many) == {}
    assert look.alerts_of_changes(many) == look.alerts_of_changes([1, 2, 3])
    assert look.members(many) == look.members()


def test_histories_of_several_series_are_those_of_each(filled):
    series = filled.series()
    for one, found in zip(series, filled.browsing.histories(series), strict=True):
        alone = filled.history(one.id)
        assert found.run_ids.tolist() == alone.run_ids.tolist()
        assert found.median.tolist() == alone.median.tolist()
        assert found.shas == alone.shas


def test_newest_histories_end_at_the_commit_where_the_whole_ones_end(filled):
    filled.ingest(replace(random_run(4), source=Source(digest="again")))  # the newest commit, once more
    filled.ingest(run(9, [samples("c0", (), outcome="failed")]))  # a newer one without values
    series = filled.series()
    for one, found in zip(series, filled.browsing.newest_histories(series), strict=True):
        (last,) = points_of(found)
        assert last == points_of(filled.history(one.id))[-1]


def test_tokens_hold_until_they_are_taken_back(store):
    text = store.access.add_token("ci", "submit", days=1)
    assert store.access.token(text).scope == "submit"
    assert store.access.token(text + "x") is None
    store.access.revoke(1)
    assert store.access.token(text) is None
    with pytest.raises(NotFoundError):
        store.access.revoke(1)
    assert [one.action for one in store.access.audit()] == ["token revoke", "token add"]


def test_two_tokens_that_hold_never_share_a_name(store):
    store.access.add_token("ci", "submit", days=1)
    with pytest.raises(SpecError, match=r"there is one of that name until .*'nearpeak token revoke 1' first"):
        store.access.add_token("ci", "read", days=1)
    store.access.revoke(1)
    store.access.add_token("ci", "read", days=1)
    assert [(one.name, one.scope) for one in store.access.tokens()] == [("ci", "submit"), ("ci", "read")]
    for name in ("run token", "command line"):
        with pytest.raises(SpecError, match="calls itself in the audit log"):
            store.access.add_token(name, "read", days=1)


def test_runs_given_on_keep_samples_and_identity(filled, make_place):
    filled.ingest(run(9, [samples("x", (), outcome="crash", note="it died")], source=Source(digest="z", selector="2")))
    with open_store(make_place(), create=True) as other:
        assert all(one.new for one in other.ingest_all(records_of(filled)))
        assert not any(one.new for one in other.ingest_all(records_of(filled)))
        assert contents(other) == contents(filled)


@pytest.mark.parametrize("importer", ["nvbench", "my own tool", '["odd", 3]'])
def test_a_run_that_is_given_on_names_the_part_of_the_file_that_it_was(store, make_place, importer):
    for selector in ("", "device=0", 'a "b" [1]'):
        given = Source(digest="file", importer=importer, version=3, selector=selector, name="nv.json")
        store.ingest(run(1, [samples("x", (1.0, 2.0))], source=given))
    with open_store(make_place(), create=True) as other:
        other.ingest_all(records_of(store))
        for one in (store, other):
            found = [record.source for record in records_of(one)]
            assert [(s.importer, s.version, s.selector) for s in found] == [
                (importer, 3, ""), (importer, 3, "device=0"), (importer, 3, 'a "b" [1]')
            ]  # fmt: skip
            assert [s.key for s in found] == [s.uid for s in found]
            assert [run_.selector for run_ in one.runs()] == ["", "device=0", 'a "b" [1]']


def test_a_damaged_importer_is_said_and_no_part_of_a_file_is_guessed():
    for text in ("nvbench", '["nvbench",1]', "1]", ""):
        with pytest.raises(StoreError, match="damaged on disk"):
            importer_of(text)
