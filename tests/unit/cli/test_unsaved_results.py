"""What is measured into a file for a store reaches it once, wherever the command is stopped in between."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from nearpeak.api import unsaved_results
from nearpeak.cli import application
from nearpeak.errors import SpecError
from nearpeak.store import Store, open_store

SIZES = ("8", "16", "24")


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Run `measure` on some sizes; return the error, if any."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEARPEAK_STORE", raising=False)

    def run(*sizes, store=("--store", "a.db"), out="r.jsonl"):
        cases = [{"op": "gemm", "m": int(size), "n": 8, "k": 8, "dtype": "fp32"} for size in sizes]
        (tmp_path / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
        words = ["measure", "cases.jsonl", "--runner", "null", "--budget", "2 ms", "--out", out, *store]
        return CliRunner().invoke(application(), words).exception

    return run


def stop(*_, **__):
    raise KeyboardInterrupt


def test_results_of_a_call_that_was_stopped_before_they_were_saved_are_saved_by_the_next(measure, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Store, "ingest_all", stop)
        assert measure(*SIZES[:2]) is not None
    measure(*SIZES)
    with open_store("a.db") as store:
        labels = [series.label for series in store.series(metric="time")]
        assert (len(labels), store.info()["run"]) == (3, 2)


def test_between_the_commit_and_the_end_nothing_is_saved_twice(measure, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(unsaved_results, "end", stop)
        assert measure(*SIZES[:2]) is not None
    measure(*SIZES)
    measure(*SIZES)
    with open_store("a.db") as store:
        assert store.info()["run"] == 2
        assert all(len(store.history(series.id)) == 1 for series in store.series())


def test_another_store_or_none_does_not_take_over_what_belongs_to_one(measure, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(Store, "ingest_all", stop)
        measure(SIZES[0])
    for store in ((), ("--store", "b.db")):
        error = measure(*SIZES, store=store)
        assert isinstance(error, SpecError)
        assert "a.db has not taken yet; name it again, or remove r.jsonl.unsaved" in str(error)
    (tmp_path / "r.jsonl.unsaved").write_text("{")
    assert "r.jsonl.unsaved: says which results are not saved yet, and is damaged" in str(measure(SIZES[0]))


def test_a_file_without_a_store_and_a_call_that_measured_nothing_leave_no_note(measure, tmp_path):
    measure(SIZES[0], store=())
    measure(SIZES[0])
    assert not (tmp_path / "r.jsonl.unsaved").exists()


def test_names_that_are_no_text_are_names_all_the_same(measure, tmp_path):
    name = os.fsdecode(b"x\xff")
    assert measure(SIZES[0], store=("--store", f"{name}.db"), out=f"{name}.jsonl") is None
    with open_store(f"{name}.db") as store:
        assert store.info()["run"] == 1
    words = ["store", "import", f"{name}.jsonl", "--device", "d", "--store", f"{name}.2.db"]
    assert CliRunner().invoke(application(), words).exception is None
    words = ["store", "export", f"{name}.out", "--format", "csv", "--store", f"{name}.2.db"]
    assert CliRunner().invoke(application(), words).exception is None
    words = ["store", "import", f"{name}.jsonl", "--device", "d", "--branch", name, "--store", "b.db"]
    assert "no text, which no database keeps" in str(CliRunner().invoke(application(), words).exception)


def test_a_locale_without_utf_8_tears_no_word_apart(tmp_path):
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    with open_store(tmp_path / "größe.db", create=True) as store:
        alert = store.findings.open_alert("a", {})
    words = [sys.executable, "-m", "nearpeak", "alerts", "note", str(alert), "größer ▲", "--by", "Jürgen"]
    done = subprocess.run(
        [*words, "--store", str(tmp_path / "größe.db")], capture_output=True, check=False, env={**os.environ, **poor}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    with open_store(tmp_path / "größe.db") as store:
        assert [(event.actor, event.note) for event in store.findings.events(alert)][1:] == [("Jürgen", "größer ▲")]
