"""`nearpeak farm`: each subcommand does its work, errors are one line with the documented exit code."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import MeasureError, NearpeakError

GEMM = ("gemm", "m=32", "n=32", "k=32", "dtype=fp32")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a subcommand in an empty folder; return exit code, output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEARPEAK_STORE", "farm.db")

    def run(*words):
        done = CliRunner().invoke(application(), ["farm", *words])
        error = done.exception
        if error is not None and not isinstance(error, (SystemExit, NearpeakError)):
            raise error
        code = error.exit_code if isinstance(error, NearpeakError) else done.exit_code
        return code, done.stdout, str(error) if isinstance(error, NearpeakError) else done.stderr

    return run


def test_jobs_go_in_once_run_and_are_shown(call, tmp_path):
    words = ("submit", "command", "--key", "night", "--", sys.executable, "-c", "print('2 ms')")
    code, first, _ = call(*words)
    assert (code, json.loads(first)["new_count"]) == (0, 1)
    assert json.loads(call(*words)[1])["known_count"] == 1
    assert call("submit", "predict", *GEMM, "-t", "h100_sxm", "-t", "h200_sxm")[0] == 0
    up = ("up", "--device", "fake-command", "--slots", "1", "--until-idle", "--json")
    line = [sys.executable, "-m", "nearpeak", "farm", *up]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["executor"] == "local"
    overview = json.loads(call("status")[1])
    assert (overview["jobs"]["done"], overview["attempts"]) == (3, {"accepted": 2})
    rows = [json.loads(row) for row in call("status", "--jobs")[1].splitlines()]
    assert sorted(one["kind"] for one in rows) == ["command", "predict", "predict"]
    (uid,) = json.loads(first)["uids"]
    assert json.loads(call("status", "--job", uid[:12])[1])["result"]["time_s"] == 0.002


def test_the_farm_ends_when_it_is_asked_to(call, tmp_path):
    line = [sys.executable, "-m", "nearpeak", "farm", "up", "--device", "fake-end", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as up:
        assert json.loads(up.stdout.readline())["devices"] == ["fake-end"]
        up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=30) == 0


def test_a_scheduler_ends_where_the_engine_cannot_start(tmp_path, monkeypatch):
    hosts = pytest.importorskip("nearpeak.farm.executors._dask_hosts")
    from nearpeak.cli._farm_engine import Engine
    from nearpeak.farm.executors import dask

    ended = []

    def refuses(*_):
        raise MeasureError("no scheduler answers")

    monkeypatch.setattr(hosts, "security_of", lambda *_: None)
    found = SimpleNamespace(address="tcp://127.0.0.1:1", close=lambda: ended.append("scheduler"))
    monkeypatch.setattr(hosts, "scheduler", lambda *_: found)
    monkeypatch.setattr(dask, "Dask", refuses)
    with pytest.raises(MeasureError):
        Engine("dask", str(tmp_path / "s.db"), (), ("127.0.0.1:0", None), ([], None, {}))
    assert ended == ["scheduler"]


def test_devices_are_drained_and_taken_into_service_again(call):
    from nearpeak.farm.devices import register
    from nearpeak.farm.values import Device
    from nearpeak.store import open_store

    with open_store("farm.db", create=True) as store:
        register(store, [Device(name="a", host="h"), Device(name="b", host="i")])
    assert json.loads(call("drain", "--host", "h", "--wait", "1 s")[1]) == {
        "devices": ["a"], "service": "draining", "busy": []
    }  # fmt: skip
    states = {one["name"]: one["service"] for one in json.loads(call("status")[1])["devices"]}
    assert states == {"a": "draining", "b": "open"}
    assert json.loads(call("drain", "--undo")[1])["devices"] == ["a", "b"]
    assert call("drain", "--device", "c")[0] == 2


def test_a_comparison_says_its_name_and_how_far_it_is(call):
    _, text, _ = call("submit", "measure", *GEMM, "--runner", "numpy", "--against", "torch_cpu", "--rounds", "2")
    found = json.loads(text)
    assert found["new_count"] == 8
    (name,) = found["comparisons"]
    assert json.loads(call("status", "--comparison", name)[1]) == {
        "comparison": name, "rounds": 0, "judgement": None
    }  # fmt: skip
    assert json.loads(call("cancel", found["uids"][0])[1])["cancelled"] == 1


def test_a_budget_refuses_with_the_number_and_exit_code_1(call):
    assert call("budget", "pr", "15 s")[0] == 0
    words = ("submit", "command", "--trigger", "pr", "--launches", "2", "--", "true")
    code, _, said = call(*words)
    assert code == 1
    assert "10 s of 15 s a day are spent, and this needs 10 s" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up",), "has no devices"),
        (("up", "--executor", "celery", "--slots", "1"), "there are local, dask, slurm"),
        (("up", "--executor", "slurm"), "needs --node"),
        (("up", "--executor", "dask", "--listen", "0.0.0.0:8786"), "whoever reaches it can run code"),
        (("up", "--slots", "1", "--ttl", "0.1 s"), "must be from 1 s"),
        (("up", "--device", "a", "--device", "a"), "named twice"),
        (("up", "--slots", "1", "--slurm", "partition"), "is not NAME=VALUE"),
        (("join", "127.0.0.1:1"), "lends nothing"),
        (("join", "nowhere", "--slots", "1"), "is no HOST:PORT"),
        (("submit", "meassure", *GEMM), "did you mean measure"),
        (("submit", "predict", *GEMM), "--target is missing"),
        (("submit", "launches", *GEMM), "takes no words"),
        (("submit", "measure"), "no case"),
        (("submit", "measure", *GEMM, "--reason", "fun"), "there are round, gate"),
        (("submit", "command"), "names no program"),
        (("submit", "capture"), "names no model"),
        (("submit", "jobs", "none.jsonl"), "not found"),
        (("status", "--state", "lazy"), "there are queued"),
        (("tls", "t", "--host", "a/b"), "is neither a name nor an address"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_exit_code_2(call, words, said):
    call("budget", "pr", "15 s")  # makes the store
    code, _, error = call(*words)
    assert (code, said in error, "\n" in error) == (2, True, False), error


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "jobs.jsonl:1: is no JSON"),
        ("[" * 5000, "jobs.jsonl:1: is no JSON"),
        ("3", "is no job"),
        ('{"kind":"command"}', "'payload' is no object"),
        ('{"kind":"command","payload":{},"x":1}', "'x' is not known"),
        ('{"kind":"command","payload":{}}', "has no 'words'"),
        ('{"kind":"none","payload":{}}', "kind of job 'none': not known"),
        ("", "holds no jobs"),
    ],
)
def test_a_file_of_jobs_that_is_wrong_says_where(call, tmp_path, line, said):
    (tmp_path / "jobs.jsonl").write_text(line)
    code, _, error = call("submit", "jobs", "jobs.jsonl")
    assert (code, said in error) == (2, True), error
    assert not (tmp_path / "farm.db").exists()


def test_text_for_people_is_at_most_80_wide():
    from nearpeak.report.history.farm import job_text, jobs_text, overview_text

    device = {"name": "GPU-" + "8" * 40, "pool": "device", "service": "quarantined", "note": "", "noise_ratio": 0.01,
              "batch": 7, "fencing_token": 123456, "left_s": 59.0}  # fmt: skip
    overview = {"devices": [device], "hosts": [{"name": "h" * 90, "executor": "dask", "seen_s": 3.0}], "queued_s": 1.0,
                "jobs": {"queued": 1}, "attempts": {"lost": 2}, "budgets": {"nightly": 60.0}}  # fmt: skip
    job = {"uid": "a" * 32, "kind": "measure", "state": "cancelled", "priority": 6, "attempt_count": 12,
           "device": "GPU-" + "8" * 40, "note": "n" * 60}  # fmt: skip
    tried = {**device, "device": "d" * 90, "outcome": "lost", "note": "n" * 90}
    whole = {"uid": "a" * 32, "kind": "measure", "state": "done", "batch": {"uid": "b" * 32}, "attempts": [tried],
             "payload": {"x": "y" * 99}, "result": None}  # fmt: skip
    for text in (overview_text(overview), jobs_text([job]), jobs_text([]), job_text(whole)):
        assert max(map(len, text.splitlines())) <= 80, text
