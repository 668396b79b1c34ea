"""A small sample of the benchmark: hostile requests over sockets get no fault, no script and no way to write."""

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra web)")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra web)")
from benchmarks.hostile_web import Outcome, attack, hostile_requests, made_store
from tests.web.conftest import served

from nearpeak.store import open_store


def test_a_sample_of_hostile_requests_finds_no_fault(tmp_path, capfd):
    place, outcome = tmp_path / "store.db", Outcome()
    tokens = made_store(place)
    with served(place) as address, open_store(place) as store:
        before = store.browsing.mark()
        attack(address, hostile_requests(7, 60, ("", "np_wrong", tokens["read"])), outcome)
        assert store.browsing.mark() == before
        attack(address, hostile_requests(8, 40, tuple(tokens.values())), outcome)
    assert outcome.faults == []
    assert outcome.statuses.total() == 100
    assert {"200", "400", "404"} <= set(outcome.statuses)
    assert "Traceback" not in capfd.readouterr().err
