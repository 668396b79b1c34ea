"""Journal of a study: one synced line per trial, from which an interrupted search goes on without repeating any."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import ftruncate, read
from pathlib import Path
from typing import Any

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.base.input_files import json_value
from nearpeak.core.tuning.space import Setting
from nearpeak.core.tuning.study import FAILED, STUDIES, Contest, Trial
from nearpeak.errors import SpecError
from nearpeak.measurement.result_file import append_whole, held_file

_HEAD = '{"key":"'
MOST_BEGUN = 2
"""Times that a configuration may end the whole program before it counts as failed."""


class StudyJournal:
    """The lines of one study; without a file they are kept in memory only."""

    def __init__(self, file: int | None, path: Path | None, request: Mapping[str, Any]) -> None:
        """Read what the file holds; an incomplete last line is removed, as its trial will run again.

        Args:
            request: what the study searches and how: a journal of another one is refused.

        Raises:
            SpecError: it is no journal, or of another study; its contents are then unchanged.
        """
        self._file, self.path = file, path
        self.trials: list[Trial] = []
        self.contests: list[Contest] = []
        self._begun: dict[str, int] = {}
        if file is None or path is None:
            return
        data = b"".join(iter(partial(read, file, 1 << 20), b""))
        whole, _, cut = data.rpartition(b"\n")
        lines = whole.decode("utf-8", "replace").splitlines() if whole else []
        self._check_head(lines, cut.decode("utf-8", "replace"), request, path)
        for number, line in enumerate(lines[1:], 2):
            self._take(line, f"{path}: line {number}")
        if cut:
            ftruncate(file, len(data) - len(cut))
        if not lines:
            self._append({"nearpeak_study": 1, "key": digest(request), "request": dict(request)})

    def _check_head(self, lines: list[str], cut: str, request: Mapping[str, Any], path: Path) -> None:
        first = lines[0] if lines else cut
        if not first.startswith(_HEAD[: len(first)]) or (lines and cut and not cut.startswith("{")):
            raise SpecError(f"{path}: is no journal of a study; it holds {first[:40]!r}")
        if not lines:
            return
        head = _object(lines[0], str(path))
        if "nearpeak_study" not in head:
            raise SpecError(f"{path}: is no journal of a study; it holds {first[:40]!r}")
        if head.get("key") == digest(request):
            return
        known = head.get("request")
        known = known if isinstance(known, dict) else {}
        other = sorted(name for name in {*known, *request} if known.get(name) != request.get(name))
        raise SpecError(
            f"{path}: is the journal of another study: {', '.join(other) or 'key'} differs; name another file"
        )

    def _take(self, line: str, where: str) -> None:
        row = _object(line, where)
        if "begin" in row:
            key = canonical_json(row["begin"])
            self._begun[key] = self._begun.get(key, 0) + 1
        elif "trial" in row:
            self.trials.append(STUDIES.value(row["trial"], Trial, where))
        elif "contest" in row:
            self.contests.append(STUDIES.value(row["contest"], Contest, where))
        else:
            raise SpecError(f"{where}: is neither begin, trial nor contest")

    def begin(self, settings: Mapping[str, Setting]) -> Trial | None:
        """Note that a configuration starts; return its failed trial where it ended the whole program before."""
        key = canonical_json(dict(settings))
        self._begun[key] = self._begun.get(key, 0) + 1
        if self._begun[key] > MOST_BEGUN:
            note = f"the program ended {MOST_BEGUN} times while it ran"
            return Trial(position=len(self.trials) + 1, settings=settings, outcome=FAILED, note=note)
        self._append({"begin": dict(settings)})
        return None

    def add(self, trial: Trial) -> None:
        """Keep a trial, which is on disk when this returns."""
        self._append({"trial": STUDIES.plain(trial)})
        self.trials.append(trial)

    def add_contest(self, contest: Contest) -> None:
        """Keep a final comparison, which is on disk when this returns."""
        self._append({"contest": STUDIES.plain(contest)})
        self.contests.append(contest)

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._file is not None and self.path is not None:
            append_whole(self._file, (canonical_json(row) + "\n").encode(), self.path)


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json_value(line)
    except (ValueError, json.JSONDecodeError):
        row = None
    if not isinstance(row, dict):
        raise SpecError(f"{where}: is no line of a journal: {line[:40]!r}")
    return row


@contextmanager
def study_journal(path: Path | None, request: Mapping[str, Any]) -> Iterator[StudyJournal]:
    """Hold the journal at `path`, or one in memory.

    Raises:
        SpecError: another process writes it, or it is no journal of this study.
    """
    if path is None:
        yield StudyJournal(None, None, request)
        return
    with held_file(path) as file:
        yield StudyJournal(file, path, request)
