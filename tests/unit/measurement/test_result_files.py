"""Result files: what is in them stays, whatever happens while more is added."""

import dataclasses
import errno
import os

import pytest

import nearpeak
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import SpecError, StoreError
from nearpeak.measurement.result_file import read_results, result_file
from nearpeak.measurement.runners import runner_of
from nearpeak.store import open_store

FOUND = runner_of("null", Timing()).measure(nearpeak.case("gemm", m=8, n=8, k=8, dtype="fp32"))


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_whole_lines_and_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    with result_file(path) as file:
        file.append(FOUND, "1")
        before = path.read_bytes()
        monkeypatch.setattr(os, "fsync", _full)
        with pytest.raises(SpecError, match=r"r\.jsonl: cannot be written: No space left on device; it holds what ran"):
            file.append(FOUND, "2")
        monkeypatch.undo()
        assert path.read_bytes() == before
        file.append(FOUND, "2")
    assert len(read_results(path)) == 2


def test_what_a_program_says_is_read_again_whatever_ends_lines_in_it(tmp_path):
    path = tmp_path / "r.jsonl"
    said = dataclasses.replace(FOUND, note="one\u2028two\x85three\u2029four", algorithm="\u2028")
    with result_file(path) as file:
        file.append(said, "1")
    (again,) = read_results(path)
    assert (again.note, again.algorithm) == (said.note, said.algorithm)
    with result_file(path) as file:
        assert file.keys == {"1"}


def test_a_store_is_not_made_in_a_folder_that_may_only_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreError, match=r"s\.db: its folder may not be written to"):
        open_store(str(tmp_path / "s.db"), create=True)
    assert not list(tmp_path.iterdir())
