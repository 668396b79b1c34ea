"""Folders of the user's own files: where the system has them, and where a variable says; files whole or not there."""

import pytest

from nearpeak.base.folders import cache_folder, data_folder, folder, whole_file
from nearpeak.errors import SpecError

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
