"""Every test of the store runs on SQLite, and on a PostgreSQL server that is started for it where it is installed."""

import pytest
from tests.unit.store import postgres

from nearpeak.store import open_store

ENGINES = (pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.slow))


@pytest.fixture(scope="session")
def postgresql():
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgres)")
    if postgres.folder_of_programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    server = postgres.Server()
    yield server
    server.close()


@pytest.fixture(params=ENGINES)
def make_place(request, tmp_path):
    """A function that names a store which does not exist yet."""
    names = iter(range(100))
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql").place
    return lambda: str(tmp_path / f"store{next(names)}.db")


@pytest.fixture
def place(make_place):
    return make_place()


@pytest.fixture
def store(place):
    with open_store(place, create=True) as opened:
        yield opened
