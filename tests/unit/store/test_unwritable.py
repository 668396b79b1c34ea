"""Whatever only reads a store works where nothing can be written: read-only folder, full disk, server, and log left."""

import contextlib
import gc
import os
import resource
import shutil
import sqlite3
import tempfile
import threading
from pathlib import Path

import pytest
from tests.unit.store.records import contents, random_run
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import StoreError
from nearpeak.store import maintenance, open_store
from nearpeak.store.sql_dialect import reading
from nearpeak.store.sqlite_connection import is_in_use

NOBODY = 65534
READS = (
    "store info", "store check", "store backup {out}/copy.db", "store export {out}/out --format csv", "history",
    "regressions", "rank", "alerts list", "token list", "farm status", "gate --policy {out}/gate.toml",
    "store merge {store} --store {out}/merged.db", "export --static {out}/pages",
)  # fmt: skip
POLICY = "rule = [{name = 'a', baseline = 'previous', tolerance = '5%'}]"


@contextlib.contextmanager
def read_only(folder):
    """A folder that this process may not write to, as another user where it is root."""
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@contextlib.contextmanager
def full_disk(_folder):
    """No file of this process can grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def folder():
    """A folder that every user may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def filled(path, count=3):
    with open_store(path, create=True) as store:
        for number in range(count):
            store.ingest(random_run(number))
        if "://" not in str(path):
            path.chmod(0o644)  # for the other user of these tests
        return contents(store)


@pytest.mark.parametrize("words", READS)
def test_a_command_that_reads_writes_nothing_beside_the_store(folder, tmp_path, words):
    filled(folder / "a.db")
    out = Path(tempfile.mkdtemp(dir=tmp_path.parent))
    for name in (out, *out.parents):
        if name.stat().st_uid == os.getuid() and name != Path(tempfile.gettempdir()):
            name.chmod(0o755)
    out.chmod(0o777)
    (out / "gate.toml").write_text(POLICY)

    def answer():
        text = words.format(out=out, store=folder / "a.db")
        text += "" if "--store" in text else f" --store {folder / 'a.db'}"
        done = CliRunner().invoke(application(), text.split())
        for path in out.iterdir():
            if path.name != "gate.toml":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return done.exit_code, done.stdout, str(done.exception)

    before, names = answer(), sorted(folder.iterdir())
    with read_only(folder):
        during = answer()
    assert during[0] == before[0]
    assert during[1:] == before[1:]
    assert sorted(folder.iterdir()) == names


@pytest.mark.parametrize("made", [read_only, full_disk])
def test_everything_is_read_and_a_write_says_why_not_until_it_can(folder, made):
    before = filled(folder / "a.db")
    with made(folder):
        store = open_store(folder / "a.db")
        assert contents(store) == before
        assert maintenance.check(store.engine, store.name, mark=False) is not None
        with pytest.raises(StoreError, match=r"a\.db: (the file cannot be written|the disk failed|no space left)"):
            store.ingest(random_run(9))
        assert contents(store) == before
    assert store.ingest(random_run(9)).new, "what was opened goes on once it can be written"
    store.close()


@pytest.mark.parametrize("made", [read_only, full_disk])
def test_commits_that_only_the_log_holds_are_read_too(folder, made):
    place = folder / "a.db"
    with open_store(place, create=True) as writer:
        writer.ingest(random_run(0))
        for name in ("a.db", "a.db-wal"):  # as a killed writer leaves them, without the index of the log
            shutil.copy(folder / name, folder / f"killed{name[1:]}")
            (folder / f"killed{name[1:]}").chmod(0o644)
        before = contents(writer)
    if made is full_disk:  # here no file at all can grow, so that the copy fails too
        with made(folder), pytest.raises(StoreError, match=r"log holds commits.*TMPDIR names a folder with room"):
            open_store(folder / "killed.db")
        return
    with made(folder), open_store(folder / "killed.db") as store:
        assert contents(store) == before


def test_a_store_that_changes_under_a_reader_without_locks_is_read_again(folder):
    place = folder / "a.db"
    filled(place, 1)
    with read_only(folder):
        store = open_store(place)

    def look():
        with reading(store.engine, store.name) as connection:
            connection.exec_driver_sql("SELECT count(*) FROM run").all()
            thread = threading.Thread(target=filled, args=(place, 2))
            thread.start()
            thread.join()

    with pytest.raises(StoreError, match="was written to while it was read; read it again"):
        look()
    assert store.info()["run"] == 2
    store.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_that_may_be_read_by_nobody_else_stays_closed_to_them(folder, is_open):
    filled(folder / "a.db", 1)
    (folder / "a.db").chmod(0o600)
    if os.geteuid():
        pytest.skip("needs two users")
    held = open_store(folder / "a.db") if is_open else contextlib.nullcontext()
    with held, read_only(folder), pytest.raises(StoreError, match="cannot be read: Permission denied"):
        open_store(folder / "a.db")


@pytest.mark.parametrize("create", [False, True])
def test_a_store_in_a_closed_folder_is_refused_in_a_line(folder, create):
    (folder / "inner").mkdir(0o700)
    filled(folder / "inner" / "a.db", 1)
    if os.geteuid():
        pytest.skip("needs two users")
    with read_only(folder), pytest.raises(StoreError, match=r"a\.db: cannot be read: Permission denied"):
        open_store(folder / "inner" / "a.db", create=create)


def test_a_store_that_nobody_holds_is_no_longer_in_use(folder):
    filled(folder / "a.db", 1)
    store = open_store(folder / "a.db")
    store.info()
    assert is_in_use(folder / "a.db")
    del store  # never closed, as after an exception
    gc.collect()
    assert not is_in_use(folder / "a.db"), "another file may take its inode"


def test_an_empty_log_is_no_commit_and_stays(folder):
    filled(folder / "a.db", 1)
    with sqlite3.connect(folder / "a.db") as connection:
        connection.execute("PRAGMA user_version")
    (folder / "a.db-wal").touch()
    with read_only(folder), open_store(folder / "a.db") as store:
        assert store.info()["run"] == 1


@pytest.mark.slow
def test_a_server_that_only_reads_serves_every_reader(postgresql, tmp_path):
    place = postgresql.place()
    filled(place)
    with open_store(place) as store:
        alert = store.findings.open_alert("a", {})
        before = contents(store)
    with open_store(f"{place}%20-cdefault_transaction_read_only%3Don") as store:
        assert contents(store) == before
        assert store.findings.status_of(alert) == "new"
        assert [event.to_status for event in store.findings.events(alert)] == ["new"]
        with pytest.raises(StoreError, match="read-only transaction"):
            store.ingest(random_run(9))
    for words in ("store info", "history", "regressions", "alerts list", "token list", "farm status"):
        done = CliRunner().invoke(
            application(), [*words.split(), "--store", f"{place}%20-cdefault_transaction_read_only%3Don"]
        )
        assert done.exit_code == 0, done.output
