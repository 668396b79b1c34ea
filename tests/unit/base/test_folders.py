"""Folders of the user's own files: where the system has them, and where a variable says; files whole or not there."""

import errno
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from multiprocessing import get_context

import pytest
from tests.other_user import OTHER, as_other_user, open_to_all

from nearpeak.base.folders import (
    cache_folder,
    data_folder,
    folder,
    is_private,
    keep_compiled_code,
    synchronise,
    take_name,
    whole_file,
    why_foreign,
    why_shared,
)
from nearpeak.base.isolation.process_tree import safe_imports
from nearpeak.base.table_engine import table_engine
from nearpeak.errors import SpecError
from nearpeak.measurement.result_file import held_file

PLACES = (".local/share", "Library/Application Support", "")


@pytest.mark.parametrize(("system", "variables", "wanted"), [
    ("linux", {"HOME": "/ada"}, "/ada/.local/share/nearpeak"),
    ("linux", {"HOME": "/ada", "XDG_DATA_HOME": "  "}, "/ada/.local/share/nearpeak"),
    ("darwin", {"HOME": "/ada"}, "/ada/Library/Application Support/nearpeak"),
    ("win32", {"LOCALAPPDATA": "/ada/Local"}, "/ada/Local/nearpeak/nearpeak"),
    ("win32", {"HOME": "/ada"}, "/ada/AppData/Local/nearpeak/nearpeak"),
])  # fmt: skip
def test_a_folder_lies_where_the_system_has_those_of_its_users(system, variables, wanted):
    assert folder("XDG_DATA_HOME", PLACES, system, variables).as_posix() == wanted


def test_data_and_cache_follow_their_own_variables(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert (data_folder().as_posix(), cache_folder().as_posix()) == ("/data/nearpeak", "/cache/nearpeak")


def test_without_a_home_in_the_variables_the_system_is_asked_for_it():
    assert folder("XDG_DATA_HOME", PLACES, "linux", {}).is_absolute()


def test_a_user_without_a_home_has_no_folder_and_none_is_made_where_the_program_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.path.expanduser", lambda text: text)  # as for a user that no database knows
    place = folder("XDG_CACHE_HOME", PLACES, "linux", {})
    assert place.is_absolute()
    with pytest.raises(OSError, match="Not a directory"):
        place.mkdir(parents=True)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_name_that_is_taken_is_never_replaced(tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "as vfat answers")))
    part, path = tmp_path / "part", tmp_path / "a"
    part.write_text("first")
    take_name(part, path)
    part.write_text("second")
    with pytest.raises(FileExistsError):
        take_name(part, path)
    assert (path.read_text(), part.read_text()) == ("first", "second")


class IOException(Exception):  # noqa: N818  # DuckDB's own name of it
    """What DuckDB raises."""


@pytest.mark.parametrize(("error", "said"), [
    (OSError(28, "No space left on device", "/hidden/part"), "cannot be written: No space left on device"),
    (IOException('IO Error: {"exception_type":"IO","errno":"28"}'), "cannot be written: No space left on device"),
    (IOException("IO Error: the medium is gone\nmore"), "cannot be written: IO Error: the medium is gone"),
])  # fmt: skip
def test_a_file_that_cannot_be_written_is_named_and_what_was_there_stays(tmp_path, error, said):
    path = tmp_path / "a.csv"
    path.write_text("before")

    def write(part):
        part.write_text("half")
        raise error

    with pytest.raises(SpecError, match=f"a.csv: {said}"), whole_file(path) as part:
        write(part)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.csv", "before")]


def test_behind_a_link_what_it_names_is_replaced_and_other_errors_pass(tmp_path):
    link, path = tmp_path / "link", tmp_path / "a"
    link.symlink_to(path)
    with whole_file(link) as part:
        part.write_text("whole")
    assert (link.is_symlink(), path.read_text()) == (True, "whole")
    with pytest.raises(ZeroDivisionError), whole_file(path):
        raise ZeroDivisionError


def test_a_file_that_is_written_again_keeps_its_mode(tmp_path):
    path = tmp_path / "mine"
    path.touch(mode=0o600)
    with whole_file(path) as part:
        part.write_text("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)


def test_a_folder_of_cached_code_is_its_users_alone(tmp_path):
    before = os.umask(0)
    try:
        assert is_private(tmp_path / "a" / "cache")
    finally:
        os.umask(before)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert why_shared(tmp_path / "open") == "other users may write to it; chmod go-w"
    assert is_private(tmp_path / "open"), "of the user's own it takes away what others may"
    for name in ("a/cache", "open"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


def test_a_folder_that_another_user_made_first_is_not_trusted(tmp_path, monkeypatch):
    open_to_all(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    as_other_user(lambda: os.mkdir(cache_folder()))
    assert cache_folder().stat().st_uid == OTHER
    assert why_shared(cache_folder()) == "belongs to another user"
    assert not is_private(cache_folder())
    keep_compiled_code()
    place = os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
    assert (os.stat(place).st_uid, stat.S_IMODE(os.stat(place).st_mode)) == (os.geteuid(), 0o700), "a new one"
    os.rmdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    keep_compiled_code()
    assert os.environ.pop("TORCHINDUCTOR_CACHE_DIR") == str(tmp_path / "mine" / "nearpeak" / "inductor")


def test_nothing_is_written_through_a_link_of_another_user_where_all_may_make_names(tmp_path):
    open_to_all(tmp_path)
    path, aim = tmp_path / "report.html", tmp_path / "mine"
    aim.write_text("mine")
    as_other_user(lambda: os.symlink(aim, path))
    with whole_file(path) as part:
        part.write_text("where only a few may make names, a link is followed")
    tmp_path.chmod(0o1777)
    with pytest.raises(SpecError, match="is a link of another user"), whole_file(path) as part:
        part.write_text("new")
    with pytest.raises(SpecError, match="is a link of another user"), held_file(path):
        pass
    assert aim.read_text().startswith("where only a few")
    path.unlink()
    path.symlink_to(aim)
    with whole_file(path) as part:
        part.write_text("new")
    assert aim.read_text() == "new"


@pytest.mark.parametrize("name", ["theirs/report.html", "theirs/../report.html", "mine/report.html", "own.html"])
def test_nothing_is_written_behind_a_link_of_another_user_further_up(tmp_path, name):
    """Files in a folder that is such a link, above it, behind an own link to it, and behind an own link of a file."""
    open_to_all(tmp_path)
    public, private = tmp_path / "public", tmp_path / "private"
    public.mkdir()
    (private / "deep").mkdir(parents=True)
    open_to_all(public)
    as_other_user(lambda: os.symlink(private / "deep", public / "theirs"))
    public.chmod(0o1777)
    (public / "mine").symlink_to("theirs")
    (public / "own.html").symlink_to("./theirs/report.html")
    with pytest.raises(SpecError, match=r"leads through .*theirs, a link of another user"), whole_file(public / name):
        pass
    assert not list(private.rglob("*.html"))


def test_a_loop_of_links_is_no_link_of_another_user(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert why_foreign(tmp_path / "a" / "report.html") == ""


def test_a_folder_that_cannot_be_synchronised_is_none_of_the_users_faults_and_a_full_disk_is(tmp_path, monkeypatch):
    for number, is_fault in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):
        monkeypatch.setattr("os.fsync", lambda _, number=number: (_ for _ in ()).throw(OSError(number, "no")))
        with pytest.raises(OSError, match="no") if is_fault else nullcontext():
            synchronise(tmp_path)


@pytest.mark.parametrize("start", ["spawn", "module"])
def test_a_process_that_starts_imports_nothing_from_the_folder_where_it_stands(tmp_path, monkeypatch, start):
    for name in ("multiprocessing", "nearpeak"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(os.path.isabs, sys.path)))
    with safe_imports():
        if start == "spawn":
            process = get_context("spawn").Process(target=os.getpid)
            process.start()
            process.join()
        else:
            subprocess.run([sys.executable, "-m", "nearpeak", "--version"], check=True, capture_output=True)
    assert not (tmp_path / "ran").exists()
    assert os.environ.get("PYTHONSAFEPATH") is None


def test_what_duckdb_cannot_hold_lies_where_no_other_user_reads(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    with table_engine() as engine:
        engine.sql("set memory_limit = '20MB'")
        engine.sql("set threads = 1")
        engine.sql("create table t as select range as i, hash(range)::varchar as text from range(1500000)")
        engine.sql("select text from t order by text limit 1 offset 1400000").fetchall()
        (place,) = engine.sql("select current_setting('temp_directory')").fetchall()[0]
        assert os.listdir(place)
        assert stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode & os.stat(place).st_mode) & 0o077 == 0
    assert not os.path.exists(place)
    assert os.listdir(tmp_path) == []
