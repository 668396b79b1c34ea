"""A store that is opened again by the process that uses it keeps its locks: no other process takes its log away."""

import subprocess
import sys

from nearpeak.store.sql_dialect import writing
from nearpeak.store.sqlite_connection import is_in_use
from nearpeak.store.store_check import engine_at

OTHER = """
import sys
from nearpeak.store.sql_dialect import reading
from nearpeak.store.store_check import engine_at
engine, name = engine_at(sys.argv[1])
with reading(engine, name) as connection:
    connection.exec_driver_sql("SELECT count(*) FROM store_info").all()
engine.dispose()
"""


def test_what_is_written_after_another_process_ended_is_there(tmp_path):
    place = str(tmp_path / "a.db")
    engine, name = engine_at(place, create=True)
    with writing(engine, name) as connection:
        connection.exec_driver_sql("INSERT INTO store_info (name, value) VALUES ('one', '1')")
    assert is_in_use(tmp_path / "a.db")
    engine_at(place)[0].dispose()  # a second look by the same process must not drop the locks of the first
    subprocess.run([sys.executable, "-c", OTHER, place], check=True)
    assert (tmp_path / "a.db-wal").exists()
    with writing(engine, name) as connection:
        connection.exec_driver_sql("INSERT INTO store_info (name, value) VALUES ('two', '2')")
    engine.dispose()
    assert not is_in_use(tmp_path / "a.db")
    again, name = engine_at(place)
    with writing(again, name) as connection:
        found = connection.exec_driver_sql("SELECT name FROM store_info WHERE name IN ('one', 'two')").all()
    again.dispose()
    assert len(found) == 2
