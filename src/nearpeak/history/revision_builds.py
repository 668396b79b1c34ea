"""Checks out, builds and runs revisions with commands of the user, so that any project can be re-measured."""

import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nearpeak.base.isolation.process_tree import end_started, marked_environment, new_mark
from nearpeak.core.runs.launch_pairs import Launch
from nearpeak.errors import MeasureError, SpecError
from nearpeak.store.git_commits import git_revision
from nearpeak.units import parse

COMMIT = "commit"
"""Axis whose versions are checked out; versions of other axes are only passed to the commands."""
_TAIL = 160


class Workshop:
    """Work folders, one per commit: checked out and built once, run any number of times.

    Commands run in a shell, in the folder of their commit. `{commit}` and the names of other axes in braces stand for
    versions, as do the variables NEARPEAK_COMMIT and so on. A run prints its time last: a quantity as `1.25 ms`, or
    the lines of `nearpeak measure --json`. A command that ends with another code than 0 cannot be built or run.
    """

    def __init__(
        self, repository: Path, run: str, build: str = "", *, limit_s: float = 600.0, keep: Sequence[int] = ()
    ) -> None:
        """Store the commands; nothing runs before the first launch.

        Args:
            keep: open files that commands inherit: the lock of the device they run on.
        """
        if not run.strip():
            raise SpecError("--run: is empty; give the command that prints a time, e.g. 'python bench.py'")
        self._repository, self._run, self._build, self._limit_s = repository, run, build, limit_s
        self._keep = tuple(keep)
        self._folder: Path | None = None
        self._places: dict[str, Path | None] = {}

    def __enter__(self) -> "Workshop":
        """Make a folder for the work."""
        self._folder = Path(tempfile.mkdtemp(prefix="nearpeak-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the checked-out folders away, from the repository's list too."""
        for place in self._places.values():
            if place is not None:
                self._git("worktree", "remove", "--force", str(place))
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._git("worktree", "prune")

    def launch(self, versions: Mapping[str, str], arm: str) -> Launch | None:
        """Return one launch; none where these versions cannot be built or run.

        Raises:
            MeasureError: the command ran, but printed no time.
        """
        place = self._place(versions)
        if place is None:
            return None
        code, output, _ = self._shell(self._run, place, versions)
        return None if code else launch_of(output, arm)

    def round(self, baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[Launch, ...] | None:
        """Return one round A B B A in its order; none where one of the two cannot be built or run."""
        launches = []
        for arm, versions in (
            ("baseline", baseline), ("candidate", candidate), ("candidate", candidate), ("baseline", baseline)
        ):  # fmt: skip
            launch = self.launch(versions, arm)
            if launch is None:
                return None
            launches.append(launch)
        return tuple(launches)

    def _place(self, versions: Mapping[str, str]) -> Path | None:
        """Return the folder in which these versions run; none where they cannot be built."""
        if COMMIT not in versions:
            return self._repository
        key = json.dumps(dict(versions), sort_keys=True) if self._build else versions[COMMIT]
        if key not in self._places:
            place = self._checked_out(versions[COMMIT], len(self._places))
            self._places[key] = place
            if self._build and self._shell(self._build, place, versions)[0]:
                self._git("worktree", "remove", "--force", str(place))
                self._places[key] = None
        return self._places[key]

    def _checked_out(self, sha: str, number: int) -> Path:
        if self._folder is None:
            raise SpecError("workshop: is used outside its `with`")
        place = self._folder / f"{number}-{sha[:10]}"
        done = self._git("worktree", "add", "--detach", "--quiet", str(place), sha)
        if done.returncode:
            raise SpecError(f"{self._repository}: cannot check out {sha[:12]}: {' '.join(done.stderr.split())[:_TAIL]}")
        return place

    def _git(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["git", "-C", str(self._repository), *arguments]
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)

    def _shell(self, text: str, place: Path, versions: Mapping[str, str]) -> tuple[int, str, str]:
        """Return code, output and errors of a command; one that takes too long is ended with all that it started."""
        for name, version in versions.items():
            text = text.replace(f"{{{name}}}", shlex.quote(version))
        variables = {f"NEARPEAK_{name.upper().replace('-', '_')}": version for name, version in versions.items()}
        mark = new_mark()
        with subprocess.Popen(
            text, shell=True, cwd=place, env=marked_environment({**os.environ, **variables}, mark),
            encoding="utf-8", errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            pass_fds=self._keep,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                end_started(process, mark)
                process.communicate()
                return 124, "", f"did not end within {self._limit_s:g} s (--limit)"
        return process.returncode, output, errors


def launch_of(output: str, arm: str) -> Launch:
    """Return the launch that a command's output states.

    Raises:
        MeasureError: the last line is neither a time nor a line of `nearpeak measure --json`.

    >>> launch_of("warming up; then the time:" + chr(10) + "1.25 ms", "baseline").time_s
    0.00125
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        raise MeasureError("--run: the command printed nothing; its last line must be a time, e.g. 1.25 ms")
    records = [record for line in lines if (record := _record(line)) is not None and record.get("samples_s")]
    clock = records[-1].get("clock_hz") if records else None
    try:
        time_s = (
            statistics.geometric_mean(statistics.median(map(float, row["samples_s"])) for row in records)
            if records
            else parse(lines[-1], "s")
        )
    except (ValueError, TypeError):
        time_s = math.nan
    if not (math.isfinite(time_s) and time_s > 0):
        problem = f"--run: the last line {lines[-1][:_TAIL]!r} is no time, e.g. 1.25 ms, nor of nearpeak measure --json"
        raise MeasureError(problem)
    return Launch(arm=arm, time_s=time_s, clock_hz=float(clock) if clock else None)


def _record(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def checked(repository: Path, name: str) -> str:
    """Return the whole name of a commit.

    Raises:
        SpecError: it is not in the repository.
    """
    return git_revision(repository, name).sha
