"""Command `nearpeak ci`: a whole job of continuous integration: measure, judge against the history, comment, keep."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.completion import runners
from nearpeak.errors import (
    INCONCLUSIVE_CODE,
    INCORRECT_CODE,
    SLOWER_CODE,
    UNAVAILABLE_CODE,
    NearpeakError,
    StoreError,
)

if TYPE_CHECKING:
    from nearpeak.gate.pipeline_event import PipelineEvent

_TRIES = 5
"""Times that a store is renewed where other jobs keep theirs first."""
_WORST = (UNAVAILABLE_CODE, INCORRECT_CODE, SLOWER_CODE, INCONCLUSIVE_CODE)
"""Exit codes, the one that outweighs all others first."""
_TOKENS = {"github": "GITHUB_TOKEN", "gitlab": "GITLAB_TOKEN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where history and reports are."""

    folder: Path
    """Folder of the job's files."""
    remote: str
    """Remote of the repository."""
    branch: str
    """Branch that holds the store."""

    def file(self, name: str) -> Path:
        """Return a file of the job."""
        return self.folder / name


def ci(
    cases: str = typer.Argument(metavar="FILE", help="Cases as of 'nearpeak measure': a suite, a table, a workload."),
    runner: str = typer.Option(
        "torch_cpu", "--runner", help="Runner of the cases ('nearpeak show runners').", autocompletion=runners
    ),
    target: str = typer.Option("", "--target", "-t", help="Device of a simulated runner."),
    policy: Path = typer.Option(Path("nearpeak-gate.toml"), "--policy", help="TOML file with the rules."),
    launches: int = typer.Option(5, "--launches", min=1, help="Fresh processes that measure each case."),
    budget: str = typer.Option("300 ms", "--budget", help="Time to sample each case, e.g. '300 ms'."),
    history: str = typer.Option("nearpeak-history", "--history-branch", help="Branch that keeps the store."),
    remote: str = typer.Option("origin", "--remote", help="Remote of that branch."),
    work: Path = typer.Option(Path(".nearpeak"), "--work", help="Folder for the store and the reports."),
) -> None:
    """Measure a commit in a job of GitHub Actions or GitLab CI, judge it, comment on the review, and keep the history.

    The store of the default branch lies on a branch of its own; only runs on the default branch renew it, after the
    verdict, and a job that comes second reads it again first. A fork's job may not write: it is judged alike, and its
    report stays in the job's summary. Exit codes are those of 'nearpeak gate'; a first run, without any history,
    passes.
    """
    from nearpeak.gate.history_branch import FILE, fetch_history
    from nearpeak.gate.pipeline_event import pipeline_event
    from nearpeak.gate.policy_file import read_policy

    event = pipeline_event(os.environ)
    read_policy(policy)  # a wrong rule is said before anything is measured
    work.mkdir(parents=True, exist_ok=True)
    place = _Place(folder=work, remote=remote, branch=history)
    results = place.file("results.jsonl")
    results.unlink(missing_ok=True)
    store, where = place.file(FILE), ("--target", target) if target else ()
    commit = fetch_history(Path(), remote, history, store)
    measured = _nearpeak("measure", cases, "--runner", runner, *where, "--launches", str(launches), "--budget", budget,
                         "--out", str(results), "--store", str(store), *_kept(event))  # fmt: skip
    if not results.exists():
        raise typer.Exit(measured or UNAVAILABLE_CODE)
    judged = _judged(event, place, policy)
    if not commit and judged == INCONCLUSIVE_CODE:
        sys.stdout.write(f"nothing to compare with yet: {event.main} has no history before this run\n")
        judged = 0
    _told(event, place)
    if event.keeps_history:  # last, so that a branch which cannot be written costs neither verdict nor report
        _publish(event, place, results, commit)
    raise typer.Exit(next((code for code in _WORST if code in (measured, judged)), measured or judged))


def _nearpeak(*words: str) -> int:
    """Return the exit code of another command of nearpeak, which prints text into the job's log, errors included."""
    command = [sys.executable, "-P", "-m", "nearpeak", *words, "--text"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ) as child:  # fmt: skip
        for line in child.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
    return child.returncode


def _kept(event: "PipelineEvent") -> tuple[str, ...]:
    """Return the words that say whose results a store receives."""
    return ("--repository", ".", "--branch", event.branch)


def _publish(event: "PipelineEvent", place: _Place, results: Path, commit: str) -> None:
    """Keep the store; where another job kept its own meanwhile, add the results to that one."""
    from nearpeak.gate.history_branch import FILE, fetch_history, publish_history

    store = place.file(FILE)
    for _ in range(_TRIES):
        if publish_history(Path(), place.remote, place.branch, store, commit):
            return
        commit = fetch_history(Path(), place.remote, place.branch, store)
        if code := _nearpeak("store", "import", str(results), "--store", str(store), *_kept(event)):
            raise typer.Exit(code)
    raise StoreError(f"history: {place.branch} was renewed by other jobs {_TRIES} times in a row; run the job again")


def _judged(event: "PipelineEvent", place: _Place, policy: Path) -> int:
    """Return the exit code of the verdict, and leave the reports."""
    from nearpeak.gate.history_branch import FILE
    from nearpeak.store.git_commits import git_revision

    reports = {"--junit": "junit.xml", "--markdown": "comment.md", "--sarif": "gate.sarif"}
    files = [word for option, name in reports.items() for word in (option, str(place.file(name)))]
    return _nearpeak("gate", "--policy", str(policy), "--store", str(place.file(FILE)), *_kept(event), "--against",
                     event.main, "--revision", git_revision(Path()).sha, *files)  # fmt: skip


def _told(event: "PipelineEvent", place: _Place) -> None:
    """Put the report into the job's summary, and into the comment of a review where the job may write one."""
    from nearpeak.gate.review_comment import upsert_comment

    report = place.file("comment.md")
    if not report.exists():
        return
    body = shared.text_of(report)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY", ""):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"{body}\n")
    token = os.environ.get(_TOKENS[event.provider], "")
    if not event.is_review or event.is_fork or not token:
        reason = (
            "a fork's job may not write" if event.is_fork else "" if token else f"{_TOKENS[event.provider]} is not set"
        )
        sys.stdout.write(f"no comment: {reason}\n" if event.is_review else "")
        return
    try:
        sys.stdout.write(f"comment {upsert_comment(event, body, token)}\n")
    except NearpeakError as error:  # the verdict counts, not the comment
        sys.stdout.write(f"no comment: {error}\n")
