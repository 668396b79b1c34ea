"""Newest values of series: in order of commits, first launches alone, no more than asked for."""

from tests.unit.store.records import random_run

from nearpeak.store import open_store


def test_newest_values_are_the_end_of_each_history(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as store:
        for number in range(6):
            store.ingest(random_run(number))
        series = store.browsing.series(limit=1000).rows
        values = store.browsing.newest_values([item.id for item in series], 3)
        assert any(len(known) > 1 for known in values.values())
        for history in store.browsing.histories(series):
            is_first = (history.launches == 0) & (history.median == history.median)
            assert values.get(history.series.id, ()) == tuple(history.median[is_first][-3:].tolist())
