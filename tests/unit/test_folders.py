"""Folders of the user's own files: where the system has them, and where a variable says."""

import pytest

from nearpeak.folders import cache_folder, data_folder, folder

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
