"""Command `ci` on recorded events: what each may write, whose history it reads, and what no job may lose."""

import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
import typer
from house_rules import ROOT

from nearpeak.cli.team import ci as command
from nearpeak.errors import SpecError, StoreError
from nearpeak.gate.history_branch import FILE, fetch_history, publish_history

BRANCH = "nearpeak-history"
REPOSITORY = {"full_name": "team/kernels", "default_branch": "main"}
POLICY = 'tolerance = "5%"\n[[rule]]\nname = "not slower"\nbaseline = "rolling"\nwindow = 10\n'


def request(source):
    head = {"ref": "faster", "sha": "0" * 40, "repo": source and {"full_name": source}}
    return {"action": "synchronize", "number": 7, "pull_request": {"number": 7, "base": {"ref": "main"}, "head": head}}


GITHUB = {
    "push": ("push", {"ref": "refs/heads/main"}, {}),
    "push to a topic": ("push", {"ref": "refs/heads/topic"}, {"GITHUB_REF_NAME": "topic"}),
    "tag of the default branch's name": (
        "push", {"ref": "refs/tags/main"}, {"GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "tag"},
    ),
    "pull request": ("pull_request", request("team/kernels"), {"GITHUB_REF_NAME": "7/merge"}),
    "pull request of a fork": ("pull_request", request("else/kernels"), {"GITHUB_REF_NAME": "7/merge"}),
    "pull request of a deleted fork": ("pull_request", request(None), {"GITHUB_REF_NAME": "7/merge"}),
    "merge group": (
        "merge_group", {"action": "checks_requested", "merge_group": {"base_ref": "refs/heads/main"}},
        {"GITHUB_REF_NAME": "gh-readonly-queue/main/pr-7-0123"},
    ),
    "schedule": ("schedule", {"schedule": "30 3 * * *"}, {}),
    "by hand": ("workflow_dispatch", {"inputs": None}, {}),
}  # fmt: skip
"""Name, contents and variables of events as GitHub documents them, without fields that nothing here reads."""
OWN = {
    "GITLAB_CI": "true", "CI_PROJECT_ID": "42", "CI_PROJECT_PATH": "team/kernels", "CI_DEFAULT_BRANCH": "main",
    "CI_SERVER_HOST": "gitlab.example.com", "GITLAB_TOKEN": "t",
}  # fmt: skip
MERGE = {
    "CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_ID": "42",
    "CI_MERGE_REQUEST_PROJECT_PATH": "team/kernels", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "team/kernels",
    "CI_MERGE_REQUEST_PROJECT_URL": "https://gitlab.example.com/team/kernels",
}  # fmt: skip
FORK = {"CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "else/kernels", "GITLAB_TOKEN": ""}
GITLAB = {
    "push": {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"},
    "schedule": {"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main"},
    "push to a topic": {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "topic"},
    "tag": {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_TAG": "main"},
    "merge request": MERGE,
    "request of a fork, in the project": MERGE | FORK,
    "request of a fork, in the fork": MERGE | FORK | {"CI_PROJECT_PATH": "else/kernels", "CI_PROJECT_ID": "77"},
    "request of a fork with a token of its own, in the fork": MERGE | FORK | {
        "CI_PROJECT_PATH": "else/kernels", "CI_PROJECT_ID": "77", "GITLAB_TOKEN": "own",
    },
}  # fmt: skip
KEEPS = {"push", "schedule", "by hand"}
COMMENTS = {"pull request", "merge request"}


class Service(BaseHTTPRequestHandler):
    """Comments that are listed, taken and edited."""

    def answer(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def do_GET(self):
        self.answer(self.server.comments)

    def edit(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        self.server.paths.append(self.path)
        if self.command == "POST":
            self.server.comments.append({"id": 1, "body": body})
        self.answer({})

    do_POST = do_PATCH = do_PUT = edit  # noqa: N815

    def log_message(self, *_):
        """Say nothing."""


def git(folder, *words, check=True):
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=check, capture_output=True, text=True).stdout


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A clone with a remote, in which `ci` runs with measuring and judging played: what they were asked is kept."""
    folder, service = tmp_path / "clone", HTTPServer(("127.0.0.1", 0), Service)
    service.comments, service.paths = [], []
    threading.Thread(target=service.serve_forever, daemon=True).start()
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main", "clone")
    git(folder, "remote", "add", "origin", "../origin.git")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "one")
    (folder / "policy.toml").write_text(POLICY)
    monkeypatch.chdir(folder)
    for name in os.environ:
        if name.startswith(("GITHUB_", "CI_", "GITLAB_")):
            monkeypatch.delenv(name)
    played = SimpleNamespace(
        asked=[], measured=0, judged=0, service=service, folder=folder, url=f"http://127.0.0.1:{service.server_port}"
    )

    def nearpeak(*words):
        played.asked.append(words)
        store = folder / ".nearpeak" / FILE
        if words[0] == "measure" and not played.measured:
            (folder / ".nearpeak" / "results.jsonl").write_text("{}\n")
        if (words[0] == "measure" and not played.measured) or words[:2] == ("store", "import"):
            with store.open("ab") as file:
                file.write(words[words.index("--branch") + 1].encode() + b";")
        if words[0] == "gate":
            (folder / ".nearpeak" / "comment.md").write_text("<!-- nearpeak-gate:p -->\nreport")
            return played.judged
        return played.measured if words[0] == "measure" else 0

    def run(variables):
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        with pytest.raises(typer.Exit) as ended:
            command.ci("cases.jsonl", runner="sim", target="", policy=folder / "policy.toml", launches=2,
                       budget="20 ms", history=BRANCH, remote="origin", work=folder / ".nearpeak")  # fmt: skip
        return ended.value.exit_code

    monkeypatch.setattr(command, "_nearpeak", nearpeak)
    played.run = run
    yield played
    service.shutdown()
    service.server_close()


def github(job, name, tmp_path):
    kind, content, more = GITHUB[name]
    (tmp_path / "event.json").write_text(json.dumps({"repository": REPOSITORY, **content}))
    return {
        "GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": kind, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": "team/kernels", "GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch",
        "GITHUB_API_URL": job.url, "GITHUB_TOKEN": "t", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), **more,
    }  # fmt: skip


def kept(job):
    """What the history branch of the remote holds: the branches whose results were added, in order."""
    file = job.folder.parent / "kept.db"
    return file.read_text() if fetch_history(job.folder, "origin", BRANCH, file) else ""


def test_the_log_of_a_job_holds_what_its_commands_print_and_their_errors_in_any_encoding(tmp_path, monkeypatch, capsys):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf 'gr\\374n\\n'\necho $PYTHONIOENCODING\necho refused >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    assert command._nearpeak("gate") == 3
    assert capsys.readouterr() == ("gr\ufffdn\nutf-8\nrefused\n", "")


@pytest.mark.parametrize("name", GITHUB)
def test_an_event_of_github_writes_what_it_may_and_no_more(job, tmp_path, name):
    assert job.run(github(job, name, tmp_path)) == 0
    assert kept(job) == ("main;" if name in KEEPS else "")
    assert len(job.service.comments) == (name in COMMENTS)
    assert (tmp_path / "summary").read_text() == "<!-- nearpeak-gate:p -->\nreport\n"
    gate = next(words for words in job.asked if words[0] == "gate")
    assert gate[gate.index("--against") + 1] == "main"
    assert (gate[gate.index("--branch") + 1] == "main") == (name in KEEPS)


@pytest.mark.parametrize("name", GITLAB)
def test_an_event_of_gitlab_writes_what_it_may_and_no_more(job, name):
    assert job.run(OWN | GITLAB[name] | {"CI_API_V4_URL": job.url}) == 0
    assert kept(job) == ("main;" if name in KEEPS else "")
    assert job.service.paths == (["/projects/42/merge_requests/7/notes"] if name in COMMENTS else [])


def test_a_second_run_edits_its_comment(job, tmp_path):
    for _ in range(2):
        job.run(github(job, "pull request", tmp_path))
    assert job.service.paths == ["/repos/team/kernels/issues/7/comments", "/repos/team/kernels/issues/comments/1"]


def test_foreign_code_is_never_measured_with_a_token_that_may_write(job, tmp_path):
    variables = github(job, "pull request of a fork", tmp_path) | {"GITHUB_EVENT_NAME": "pull_request_target"}
    with pytest.raises(SpecError, match="use pull_request"):
        job.run(variables)
    assert job.asked == []


def test_the_first_of_all_runs_passes_and_a_later_one_that_cannot_tell_does_not(job, tmp_path):
    job.judged = 11
    assert job.run(github(job, "pull request of a fork", tmp_path)) == 0
    job.judged = 0
    assert job.run(github(job, "push", tmp_path)) == 0
    job.judged = 11
    assert job.run(github(job, "pull request of a fork", tmp_path)) == 11


def test_a_run_that_measured_nothing_leaves_the_history_as_it_was(job, tmp_path):
    job.run(github(job, "push", tmp_path))
    job.measured = 3
    assert job.run(github(job, "push", tmp_path)) == 3
    assert kept(job) == "main;"
    job.measured = 0
    job.run(github(job, "push", tmp_path))
    assert kept(job) == "main;main;"


def test_of_two_jobs_at_once_neither_loses_its_results(job, tmp_path, monkeypatch):
    job.run(github(job, "push", tmp_path))
    judged = command._judged

    def overtaken(*arguments):  # another job is done while this one judges
        file = tmp_path / "other.db"
        before = fetch_history(job.folder, "origin", BRANCH, file)
        file.write_text(f"{file.read_text()}other;")
        assert publish_history(job.folder, "origin", BRANCH, file, before)
        return judged(*arguments)

    monkeypatch.setattr(command, "_judged", overtaken)
    assert job.run(github(job, "push", tmp_path)) == 0
    assert kept(job) == "main;other;main;"


def test_a_branch_that_cannot_be_written_costs_neither_verdict_nor_report(job, tmp_path):
    hook = job.folder.parent / "origin.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(StoreError, match=f"{BRANCH} cannot be pushed to origin"):
        job.run(github(job, "push", tmp_path))
    assert (tmp_path / "summary").read_text().endswith("report\n")


def documents(name):
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
    return list(yaml.safe_load_all((ROOT / "docs" / "ci" / name).read_text(encoding="utf-8")))


def component():
    """The component's job, and a function that fills its inputs into a text."""
    head, body = documents("gitlab.yml")
    inputs = {name: one.get("default", "") for name, one in head["spec"]["inputs"].items()}
    inputs |= {"cases": "my cases.jsonl", "install": "nearpeak @ git+https://h/g/n@c"}

    def filled(text):
        return re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: inputs[found[1]], text)

    return filled, body["performance"]


@pytest.mark.parametrize("name", GITLAB)
def test_the_scripts_of_the_component_run_on_every_event(tmp_path, name):
    filled, job = component()
    for program in ("python", "nearpeak"):
        (tmp_path / program).write_text(f'#!/bin/bash\nprintf "%s\\n" {program} "$@" >> {tmp_path}/called\n')
        (tmp_path / program).chmod(0o755)
    git(tmp_path, "init", "--quiet", "clone")
    git(tmp_path / "clone", "remote", "add", "origin", "https://old")
    variables = {key: filled(text) for key, text in job["variables"].items()}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables, **OWN, **GITLAB[name]}
    subprocess.run(
        ["bash", "-e", "-c", "\n".join([*job["before_script"], *job["script"]])], cwd=tmp_path / "clone",
        env=environment, check=True, capture_output=True,
    )  # fmt: skip
    called = (tmp_path / "called").read_text().splitlines()
    assert called[:6] == ["python", "-m", "pip", "install", "--quiet", "nearpeak @ git+https://h/g/n@c"]
    assert called[6:9] == ["nearpeak", "ci", "my cases.jsonl"]
    remote = called[called.index("--remote") + 1]
    assert remote == ("https://gitlab.example.com/team/kernels.git" if "in the fork" in name else "origin")
    url = git(tmp_path / "clone", "remote", "get-url", "origin").strip()
    assert ("oauth2:" in url) == bool(environment["GITLAB_TOKEN"])


def test_pipelines_of_the_component_are_those_that_are_judged():
    _, job = component()
    conditions = [rule["if"] for rule in job["rules"]]
    assert conditions == ['$CI_PIPELINE_SOURCE == "merge_request_event"', "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"]


def test_the_workflow_runs_on_events_that_are_recorded_here():
    (workflow,) = documents("github_actions.yml")
    assert set(workflow[True]) <= {kind for kind, _, _ in GITHUB.values()}  # YAML 1.1 reads `on` as true
    assert "pull_request_target" not in workflow[True]
