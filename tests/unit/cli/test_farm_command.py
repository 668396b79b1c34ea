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
    words = ("submit", "command", "--key", "night", "--json", "--", sys.executable, "-c", "print('2 ms')")
    code, first, _ = call(*words)
    assert (code, json.loads(first)["new_count"]) == (0, 1)
    assert json.loads(call(*words)[1])["known_count"] == 1
    assert call("submit", "predict", *GEMM, "-t", "h100_sxm", "-t", "h200_sxm")[0] == 0
    up = ("up", "--device", "fake-command", "--slots", "1", "--until-idle", "--json")
    line = [sys.executable, "-m", "nearpeak", "farm", *up]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "jobs: 3 done\n")
    assert json.loads(done.stdout)["executor"] == "local"
    overview = json.loads(call("status", "--json")[1])
    assert (overview["jobs"]["done"], overview["attempts"]) == (3, {"accepted": 2})
    rows = [json.loads(row) for row in call("status", "--jobs", "--json")[1].splitlines()]
    assert sorted(one["kind"] for one in rows) == ["command", "predict", "predict"]
    (uid,) = json.loads(first)["uids"]
    assert json.loads(call("status", "--job", uid[:12], "--json")[1])["result"]["time_s"] == 0.002


def test_the_farm_ends_when_it_is_asked_to(call, tmp_path):
    line = [sys.executable, "-m", "nearpeak", "farm", "up", "--device", "fake-end", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as up:
        assert json.loads(up.stdout.readline())["devices"] == ["fake-end"]
        for _ in range(2):  # to the process and to its group, as some do: it is asked once
            up.send_signal(signal.SIGTERM)
        assert up.wait(timeout=30) == 0


def test_a_scheduler_ends_where_the_engine_cannot_start(tmp_path, monkeypatch):
    hosts = pytest.importorskip("nearpeak.farm.dask_hosts")
    from nearpeak.cli.shared.farm_engine import Engine
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
    from nearpeak.farm.device_registry import register
    from nearpeak.farm.jobs import Device
    from nearpeak.store import open_store

    with open_store("farm.db", create=True) as store:
        register(store, [Device(name="a", host="h"), Device(name="b", host="i")])
    assert json.loads(call("drain", "--host", "h", "--wait", "1 s", "--json")[1]) == {
        "devices": ["a"], "service": "draining", "busy": []
    }  # fmt: skip
    states = {one["name"]: one["service"] for one in json.loads(call("status", "--json")[1])["devices"]}
    assert states == {"a": "draining", "b": "open"}
    assert json.loads(call("drain", "--undo", "--json")[1])["devices"] == ["a", "b"]
    assert call("drain", "--device", "c")[0] == 2


def test_a_comparison_says_its_name_and_how_far_it_is(call):
    _, text, _ = call(
        "submit", "measure", *GEMM, "--runner", "numpy", "--against", "torch_cpu", "--rounds", "2", "--json"
    )
    found = json.loads(text)
    assert found["new_count"] == 8
    (name,) = found["comparisons"]
    assert json.loads(call("status", "--comparison", name, "--json")[1]) == {
        "comparison": name, "rounds": 0, "judgement": None
    }  # fmt: skip
    assert json.loads(call("cancel", found["uids"][0], "--json")[1])["cancelled"] == 1


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
        (("join", "tcp://127.0.0.1:1", "--slots", "1"), "without encryption, and whoever reaches it can run code"),
        (("submit", "meassure", *GEMM), "did you mean measure"),
        (("submit", "predict", *GEMM), "--target is missing"),
        (("submit", "launches", *GEMM), "takes no words"),
        (("budget", "fun", "1 h"), "trigger 'fun' is not known; there are manual"),
        (("budget", "pr"), "e.g. farm budget pr '2 h'"),
        (("budget", "pr", "2 days"), "TIME '2 days': is not a time"),
        (("status", "--job", "a", "--jobs"), "give one of --jobs, --job and --comparison"),
        (("results", "--kind", "predit"), "did you mean predict"),
        (("join", "ftp://127.0.0.1:1", "--slots", "1"), "is no HOST:PORT"),
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
        ("{", "jobs.jsonl:1: is not JSON"),
        ("[" * 5000, "jobs.jsonl:1: is not JSON"),
        ("3", "is not a job"),
        ('{"kind":"command"}', "'payload' is not an object"),
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
    from nearpeak.reports.document.terminal import to_terminal
    from nearpeak.reports.history.farm import job_document, jobs_document, overview_document

    device = {"name": "GPU-" + "8" * 40, "pool": "device", "service": "quarantined", "note": "", "noise_ratio": 0.01,
              "batch": 7, "fencing_token": 123456, "left_s": 59.0, "is_away": False}  # fmt: skip
    overview = {"devices": [device], "hosts": [{"name": "h" * 90, "executor": "dask", "seen_s": 3.0}], "queued_s": 1.0,
                "jobs": {"queued": 1}, "attempts": {"lost": 2, "accepted": 10**6, "infra": 7, "rejected": 5},
                "stranded": [{"job_count": 3, "wanted": "device '" + "d" * 90, "is_known": False}],
                "budgets": {"nightly": 60.0}, "asked_s": {}}  # fmt: skip
    job = {"uid": "a" * 32, "kind": "measure", "state": "cancelled", "priority": 6, "attempt_count": 12,
           "device": "GPU-" + "8" * 40, "note": "n" * 90, "what": "w" * 90}  # fmt: skip
    tried = {**device, "device": "d" * 90, "outcome": "lost", "note": "n" * 90}
    whole = {"uid": "a" * 32, "kind": "measure", "state": "done", "batch": {"uid": "b" * 32}, "attempts": [tried],
             "payload": {"x": "y" * 99}, "result": None}  # fmt: skip
    documents = (overview_document(overview), jobs_document([job], 10**6), jobs_document([], 0))
    for text in map(to_terminal, (*documents, job_document(whole))):
        assert max(map(len, text.splitlines())) <= 80, text
        assert "\x1b" not in text


@pytest.fixture
def terminal(monkeypatch):
    """Output as people see it."""
    from nearpeak.cli.shared import options as _shared

    monkeypatch.setattr(_shared, "on_terminal", lambda: True)


def test_a_job_has_one_name_that_every_command_takes(call, terminal):
    code, text, _ = call("submit", "command", "--", "true")
    name = text.split()[1].rstrip(":")
    assert (code, len(name), text) == (0, 12, f"job {name}: queued\n")
    assert call("submit", "command", "--", "true")[1] == f"job {name}: queued already\n"
    assert call("status", "--jobs")[1].splitlines()[2].startswith(f"{name}  command  queued")
    assert call("status", "--job", name)[1].startswith(f"job {name}")
    assert call("cancel", name)[1] == "1 batch cancelled\n"
    assert call("cancel", name)[1] == "0 batches cancelled: all are over\n"
    assert call("submit", "command", "--", "true")[1] == f"job {name}: cancelled already\n"
    code, _, error = call("cancel", name[:5])
    assert (code, "give at least 8 of its letters" in error) == (2, True)
    two = call("submit", "predict", *GEMM, "-t", "h100_sxm", "-t", "h200_sxm")[1]
    assert two.startswith("2 new jobs; the first is ")


def test_jobs_for_a_device_that_is_not_there_are_told(call, terminal):
    from nearpeak.farm.device_registry import cpu_device, register
    from nearpeak.store import open_store

    call("submit", "command", "--device", "cpu", "--", "true")
    with open_store("farm.db") as store:
        register(store, [cpu_device("here")])
    assert "1 job waits for device 'cpu', which no host ever lent" in call("status")[1]
    error = call("submit", "command", "--model", "H300", "--", "true")[2]
    assert error == "the farm never had a device of model 'H300': what asks for it waits until a host lends it\n"
    call("submit", "command", "--device", "cpu@here", "--", "true")
    call("drain")
    assert "1 job waits for device 'cpu@here', which is out of service" in " ".join(call("status")[1].split())


def test_the_same_on_another_device_or_model_is_another_job(call):
    words = ("submit", "measure", *GEMM, "--runner", "numpy")
    for more in ((), ("--device", "a"), ("--device", "b"), ("--model", "H200"), ("--against", "numpy", "--device", "a"),
                 ("--against", "numpy", "--device", "b")):  # fmt: skip
        found = json.loads(call(*words, *more, "--json")[1])
        assert (found["new_count"] > 0, found["known_count"]) == (True, 0), more
        assert json.loads(call(*words, *more, "--json")[1])["new_count"] == 0


def test_a_host_that_lends_nothing_any_more_is_away(call, terminal):
    from nearpeak.farm.device_registry import heartbeat, leave, slots_of
    from nearpeak.farm.device_registry import register as known
    from nearpeak.store import open_store

    with open_store("farm.db", create=True) as store:
        known(store, slots_of(1))
        heartbeat(store, "local", {})
        assert " free " in call("status")[1]
        leave(store)
        assert " away " in call("status")[1]
        assert "host " not in call("status")[1]


def test_a_budget_is_shown_changed_and_taken_away(call, terminal):
    assert call("budget", "pr", "2 h")[1] == "budget of trigger pr: 7200 s of device time a day, 0 s requested\n"
    call("submit", "command", "--trigger", "pr", "--", "true")
    assert call("budget")[1] == "budget of trigger pr: 7200 s of device time a day, 10 s requested\n"
    assert call("budget", "pr", "none")[1] == "no budgets: each trigger may ask for as much as it likes\n"


def test_a_farm_whose_options_are_wrong_makes_no_store(call, tmp_path):
    for words in (("--executor", "celery", "--slots", "1"), ("--executor", "slurm", "--slots", "1"),
                  ("--executor", "dask", "--listen", "127.0.0.1:99999"), ("--slots", "1", "--tls", "none"),
                  ("--executor", "dask", "--tls", "none"), ("--slots", "1", "--node", "n1"),
                  ("--executor", "dask", "--slurm", "a=b"), ("--device", "gpu"), ("--device", "CUDA:0")):  # fmt: skip
        code, _, error = call("up", *words)
        assert (code, "\n" in error) == (2, False), (words, error)
        assert not (tmp_path / "farm.db").exists()


def test_gpus_that_are_not_there_are_told_with_what_there_is_instead(call, monkeypatch):
    from nearpeak.farm import device_health, device_registry
    from nearpeak.farm.jobs import Device

    monkeypatch.setattr(device_registry, "gpus", lambda: ())
    monkeypatch.setattr(device_health, "why_no_gpu", lambda: "no driver")
    code, _, error = call("up", "--device", "gpus", "--device", "cpu")
    assert (code, "(no driver); --device cpu leases its processor, --slots N lends its cores" in error) == (3, True)
    monkeypatch.setattr(device_registry, "gpus", lambda: (Device(name="GPU-aaaa"), Device(name="GPU-bbbb")))
    assert [one.name for one in device_registry.named_devices(["gpus", "own"])] == ["GPU-aaaa", "GPU-bbbb", "own"]
    assert [one.name for one in device_registry.named_devices(["GPU-bbbb"])] == ["GPU-bbbb"]
    code, _, error = call("up", "--device", "GPU-cccc")
    assert (code, error) == (3, "--device GPU-cccc: is not on this host; it has GPU-aaaa, GPU-bbbb")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("predict", *GEMM, "-t", "h100_sxm", "--against", "numpy"),
            "--against: is for measure, command; a job of kind",
        ),
        (("measure", *GEMM, "-t", "h100_sxm"), "--target: is for predict, simulate"),
        (("command", "--runner", "numpy", "--", "true"), "--runner: is for measure"),
        (("command", "--rounds", "3", "--", "true"), "name what to compare with by --against"),
        (("command", "--effect", "1%", "--", "true"), "name what to compare with by --against"),
        (("command", "--against", "false", "--launches", "2", "--", "true"), "number of --rounds counts"),
        (("command", "--against", "'", "--", "true"), "no closing quotation"),
        (("command", "--", "./bench"), "name it whole"),
        (("command", "--folder", "here", "--", "./bench"), "must be a whole path"),
        (
            ("command", "--limit", "5", "--", "true"),
            "--limit '5': is not a time; e.g. '300 ms', '60 s', '20 min' or '2 h'",
        ),
        (("capture", "none.py"), "none.py: not found"),
        (("capture", "resnet51"), "did you mean resnet-50"),
        (("capture", "resnet-50", "bath=3"), "'bath' is not one of step, dtype, batch"),
        (("capture", "resnet-50", "batch=0"), "batch=0: must be a whole number of at least 1"),
        (("capture", "resnet-50", "step=sideways"), "step 'sideways' is not one of"),
    ],
)
def test_what_a_kind_of_job_does_not_read_is_refused_and_no_store_is_made(call, tmp_path, words, said):
    code, _, error = call("submit", *words)
    assert (code, said in error, "\n" in error) == (2, True, False), error
    assert not (tmp_path / "farm.db").exists()


def test_a_program_runs_in_the_folder_that_is_named(call, tmp_path):
    (tmp_path / "bench.sh").write_text("echo 3 ms")
    words = ("submit", "command", "--folder", str(tmp_path), "--json", "--", "sh", "bench.sh")
    (uid,) = json.loads(call(*words)[1])["uids"]
    call("submit", "command", "--folder", str(tmp_path / "none"), "--", "sh", "bench.sh")
    line = [sys.executable, "-m", "nearpeak", "farm", "up", "--device", "fake-folder", "--until-idle"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.stderr == "jobs: 1 done, 1 failed; 'nearpeak farm status --state failed' says why\n"
    assert json.loads(call("status", "--job", uid, "--json")[1])["result"]["time_s"] == 0.003
    (failed,) = [json.loads(row) for row in call("status", "--state", "failed", "--json")[1].splitlines()]
    assert "none: is no folder on this host" in failed["note"]


def test_results_come_back_as_lines_and_as_a_table_in_the_order_in_which_they_were_asked_for(call, tmp_path):
    words = ("submit", "predict", *GEMM, "-t", "h200_sxm", "-t", "h100_sxm", "--json")
    (tmp_path / "asked.json").write_text(
        call(*words)[1] + call("submit", "capture", "resnet-50", "batch=1,2", "--json")[1]
    )
    assert call("results", "--of", "asked.json")[2] == "4 of 4 jobs have no result yet, or are of another kind\n"
    line = [sys.executable, "-m", "nearpeak", "farm", "up", "--slots", "1", "--until-idle"]
    subprocess.run(line, capture_output=True, check=True, cwd=tmp_path, timeout=240)
    rows = [json.loads(row) for row in call("results", "--of", "asked.json")[1].splitlines()]
    assert [row["payload"].get("target", row["payload"].get("batch")) for row in rows] == ["h200_sxm", "h100_sxm", 1, 2]
    assert [row["result"]["call_count"] > 10 for row in rows[2:]] == [True, True]
    assert call("results", "--kind", "predict", "--out", "table.csv")[2] == "wrote table.csv: 2 results\n"
    head, *lines = (tmp_path / "table.csv").read_text().splitlines()
    assert {"op", "m", "dtype", "target", "bound_s", "time_s", "limiter"} <= set(head.split(","))
    assert len(lines) == 2
    for name, text in (("asked.json", '{"uids": 3}'), ("other.json", "x")):
        (tmp_path / name).write_text(text)
        assert call("results", "--of", name)[0] == 2


@pytest.mark.parametrize(
    ("kind", "count", "sizes"),
    [("predict", 30, [30]), ("predict", 1600, [100] * 16), ("predict", 40_000, [1000] * 40),
     ("simulate", 4000, [200] * 20), ("capture", 5, [2, 2, 1])],
)  # fmt: skip
def test_small_jobs_share_a_lease_by_what_they_take_and_how_many_there_are(kind, count, sizes):
    from nearpeak.cli.shared.farm_requests import Submission, _chunked
    from nearpeak.farm.jobs import JobRequest

    options = {"device": "", "model": "", "trigger": "manual", "owner": "", "priority": 7}
    found = _chunked(Submission(kind=kind, words=(), options=options),
                     [JobRequest(kind=kind, payload={"n": number}) for number in range(count)], "slot")  # fmt: skip
    assert [len(one.jobs) for one in found] == sizes
