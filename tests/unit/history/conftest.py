"""A store with the made-up history, made once."""

import pytest

from nearpeak.history.demo_store import filled
from nearpeak.history.series_tracks import track_of
from nearpeak.store import open_store


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """The place of a store with the demonstration; tests that write copy it."""
    place = tmp_path_factory.mktemp("history") / "made_up.db"
    with open_store(place, create=True) as store:
        filled(store)
    return place


@pytest.fixture
def store(made_up):
    with open_store(made_up) as opened:
        yield opened


@pytest.fixture(scope="session")
def tracks(made_up):
    with open_store(made_up) as opened:
        return [track_of(opened, one.id) for one in opened.series()]
