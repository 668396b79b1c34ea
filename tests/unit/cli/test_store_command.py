"""`nearpeak store`: each subcommand does its work, errors are one line with the documented exit code."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from nearpeak.api.measured_analysis import measure
from nearpeak.cli import application
from nearpeak.errors import NearpeakError
from nearpeak.ops import case
from nearpeak.store import open_store
from nearpeak.store.table_schema import HEAD

ON = ("--device", "made up")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a subcommand in an empty folder that holds results.jsonl; return exit code, output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEARPEAK_STORE", raising=False)
    list(measure(case("gemm", m=8, n=8, k=8, dtype="fp32"), "null", out=tmp_path / "results.jsonl"))

    def run(*words):
        done = CliRunner().invoke(application(), ["store", *words])
        error = done.exception
        if error is not None and not isinstance(error, (SystemExit, NearpeakError)):
            raise error
        code = error.exit_code if isinstance(error, NearpeakError) else done.exit_code
        return code, done.stdout, str(error) if isinstance(error, NearpeakError) else done.stderr

    return run


def test_results_go_in_once_and_info_counts_them(call):
    code, first, _ = call("import", "results.jsonl", *ON, "--store", "a.db", "--json")
    assert (code, json.loads(first)["new"], json.loads(first)["measurements"]) == (0, True, 2)
    _, second, _ = call("import", "results.jsonl", *ON, "--store", "a.db", "--json")
    assert json.loads(second) == json.loads(first) | {"new": False}
    _, text, _ = call("info", "--store", "a.db", "--json")
    assert (json.loads(text)["run"], json.loads(text)["engine"]) == (1, "sqlite")
    _, third, _ = call("import", "results.jsonl", *ON, "--store", "a.db", "--again", "--json")
    assert json.loads(third)["new"]


def test_fields_that_are_not_kept_are_counted_and_listed_on_request(call, tmp_path):
    rows = [{"cat": "Session", "name": "model_run", "dur": 10 + place, "pid": 1, "ts": place} for place in range(3)]
    (tmp_path / "p.json").write_text(json.dumps(rows))
    code, _, words = call("import", "p.json", *ON, "--store", "a.db")
    assert (code, words) == (0, "p.json: 2 fields are not stored, such as [].pid; --details lists them\n")
    assert (
        call("import", "p.json", *ON, "--store", "b.db", "--details")[2] == "p.json: not stored:\n  [].pid\n  [].ts\n"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_that_names_its_commit_goes_where_that_stands_in_the_repository(call, tmp_path, version):
    def git(*words):
        made = ["git", "-C", str(tmp_path / "r"), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "r").mkdir()
    git("init", "-q")
    shas = []
    for subject in ("one", "two", "three"):
        git("commit", "-q", "--allow-empty", "-m", subject)
        shas.append(git("rev-parse", "HEAD"))
    results = {"time_a": 0.5} if version == 1 else {"time_a": [[0.5], [], "abc"]}
    columns = {"result_columns": ["result", "params", "version"]} if version == 2 else {}
    for name, sha in (("old.json", shas[1]), ("absent.json", "f" * 40)):
        record = {"commit_hash": sha, "env_name": "e", "params": {"machine": "m"}, "results": results, **columns}
        (tmp_path / name).write_text(json.dumps(record | {"version": version}))
    code, _, words = call("import", "old.json", *ON, "--store", "a.db", "--repository", "r")
    assert code == 0, words
    with open_store("a.db") as opened:
        (run,) = opened.runs()
    assert (run.revision.sha, run.revision.position, run.revision.subject) == (shas[1], 1, "two")
    code, _, words = call("import", "absent.json", *ON, "--store", "a.db", "--repository", "r")
    assert (code, "is not in the repository" in words) == (2, True)
    code, _, words = call("import", "old.json", *ON, "--store", "b.db", "--repository", "r", "--commit", "HEAD")
    assert (code, "give one" in words) == (2, True)


def test_where_one_file_is_refused_nothing_of_any_is_written(call, tmp_path):
    (tmp_path / "cut.json").write_text('{"context": {}, "benchmarks": [')
    code, _, words = call("import", "results.jsonl", "cut.json", *ON, "--store", "a.db")
    assert (code, words.startswith("cut.json: is cut off at line 1")) == (2, True)
    assert not (tmp_path / "a.db").exists()


def test_the_environment_names_the_store_where_no_option_does(call, monkeypatch):
    code, _, words = call("info")
    assert code == 2
    assert "NEARPEAK_STORE is not set" in words
    monkeypatch.setenv("NEARPEAK_STORE", "b.db")
    assert call("import", "results.jsonl", *ON)[0] == 0
    assert call("info")[0] == 0


def test_copies_checks_merges_exports_and_retention(call, tmp_path):
    call("import", "results.jsonl", *ON, "--store", "a.db")
    assert call("backup", "b.db", "--store", "a.db")[0] == 0
    assert call("check", "--store", "b.db")[:2] == (0, "nothing is wrong\n")
    assert call("merge", "a.db", "b.db", "--store", "c.db")[0] == 0
    assert json.loads(call("info", "--store", "c.db", "--json")[1])["run"] == 1
    assert call("export", "out", "--store", "c.db", "--format", "csv")[0] == 0
    assert (tmp_path / "out" / "manifest.json").exists()
    assert "could be removed" in call("retain", "old", "--store", "c.db", "--days", "0")[1]
    assert not (tmp_path / "old").exists()
    assert " removed;" in call("retain", "old", "--store", "c.db", "--days", "0", "--apply")[1]
    assert f"{HEAD} already" in call("upgrade", "--store", "c.db")[2]
    assert call("salvage", "d.db", "--store", "b.db")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("info", "--store", "none.db"), 2, "there is no store"),
        (("import", "nothing.jsonl", "--store", "a.db"), 2, "not found"),
        (("import", "results.jsonl", "--store", "a.db", "--commit", "abc"), 2, "needs --repository"),
        (("import", "results.jsonl", "--store", "a.db", "--repository", "."), 2, "git rev-parse"),
        (("import", "results.jsonl", "--store", "a.db", "--component", "torch"), 2, "is not NAME=VERSION"),
        (("import", "results.jsonl", *ON, "--store", "a.db", "--trigger", "fun"), 2, "trigger 'fun' is not known"),
        (("import", "results.jsonl", "--store", "postgresql://me:secret@h/x"), 2, "holds a password"),
        (("import", "results.jsonl", "--store", "a.db"), 2, "does not say on which device"),
        (("export", "results.jsonl", "--store", "none.db"), 2, "there is no store"),
        (("backup", "b.db", "--store", "postgresql://h/x"), 2, "pg_dump"),
    ],
)
def test_errors_are_one_line_and_nothing_is_made(call, tmp_path, words, code, said):
    got = call(*words)
    assert got[0] == code
    assert said in got[2]
    assert "\n" not in got[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.jsonl"]


def test_a_damaged_store_makes_check_fail_with_code_one(call, tmp_path):
    call("import", "results.jsonl", *ON, "--store", "a.db")
    path = tmp_path / "a.db"
    data = bytearray(path.read_bytes())
    place = data.index(bytes.fromhex("6f12833a"))  # 0.001 s as a little-endian float32
    data[place] ^= 1
    path.write_bytes(data)
    code, text, _ = call("check", "--store", "a.db")
    assert (code, "checksum differs" in text) == (1, True)


def test_runs_leave_as_text_of_other_tools_out_of_a_store_or_a_result_file(call, tmp_path):
    call("import", "results.jsonl", *ON, "--store", "a.db")
    assert call("export", "a.json", "--store", "a.db", "--format", "bencher")[0] == 0
    assert call("export", "b.json", "--results", "results.jsonl", "--format", "bencher", "--device", "made up")[0] == 0
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "b.json").read_text()) != {}
    assert call("export", "a.txt", "--store", "a.db", "--run", "1", "--format", "openmetrics")[0] == 0
    assert call("export", "c.txt", "--store", "a.db", "--run", "9", "--format", "openmetrics")[0] == 2
    assert "add --format bencher or openmetrics" in call("export", "c", "--store", "a.db", "--run", "1")[2]
    assert "exists; name a new file" in call("export", "a.txt", "--store", "a.db", "--format", "bencher")[2]
