"""Journal of a study: one synced line per trial, from which an interrupted search goes on without repeating any."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from os import ftruncate, read
from pathlib import Path
from typing import Any

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.base.input_files import border, json_value, reading, text_of_file
from nearpeak.core.tuning.space import Setting
from nearpeak.core.tuning.study import (
    FAILED,
    PRUNED,
    STOPPED,
    STUDIES,
    TIMED,
    WRONG,
    Contest,
    Study,
    Trial,
)
from nearpeak.errors import SpecError, shown
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
        self.study: Study | None = None
        """What was last stated of the study, without its trials and contests."""
        self.is_stated = False
        """Whether nothing has followed that."""
        self._begun: dict[str, int] = {}
        if file is None or path is None:
            return
        data = b"".join(iter(partial(read, file, 1 << 20), b""))
        whole, _, cut = data.rpartition(b"\n")
        lines = whole.decode("utf-8", "replace").split("\n") if whole else []
        self._check_head(lines, cut.decode("utf-8", "replace"), request, path)
        for number, line in enumerate(lines[1:], 2):
            self.take(line, f"{path}: line {number}")
        if cut:
            ftruncate(file, len(data) - len(cut))
        if not lines:
            self._append({"key": digest(request), "nearpeak_study": 1, "request": dict(request)})

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

    def take(self, line: str, where: str) -> None:
        """Take one line after the first.

        Raises:
            SpecError: it is no line of a journal.
        """
        row = _object(line, where)
        self.is_stated = "study" in row
        with reading(where, "line of a journal"):
            if "begin" in row:
                key = canonical_json(row["begin"])
                self._begun[key] = self._begun.get(key, 0) + 1
            elif "trial" in row:
                self.trials.append(_sound_trial(STUDIES.value(row["trial"], Trial, where), where))
            elif "contest" in row:
                self.contests.append(STUDIES.value(row["contest"], Contest, where))
            elif "study" in row:
                self.study = STUDIES.value(row["study"], Study, where)
            else:
                raise SpecError(f"{where}: is neither begin, trial, contest nor study")

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

    def state(self, study: Study) -> None:
        """Keep what a study is about, so that its journal can be shown alone; trials and contests have their lines."""
        bare = replace(study, trials=(), contests=())
        if bare != self.study or not self.is_stated:
            self._append({"study": STUDIES.plain(bare)})
            self.study = bare

    def _append(self, row: Mapping[str, Any]) -> None:
        self.is_stated = "study" in row
        if self._file is not None and self.path is not None:
            append_whole(
                self._file,
                (json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n").encode(),
                self.path,
            )


def _sound_trial(trial: Trial, where: str) -> Trial:
    """Return a trial whose times and objectives are numbers that a search can compare."""
    times_s = [trial.spent_s, trial.bound_s, *trial.samples_s, *([] if trial.time_s is None else [trial.time_s])]
    if not all(0 <= time_s < inf for time_s in times_s) or not all(map(isfinite, trial.values.values())):
        raise SpecError(f"{where}: holds a number that is not finite, or a time below 0")
    if trial.outcome not in (TIMED, STOPPED, PRUNED, WRONG, FAILED):
        raise SpecError(f"{where}: has outcome {shown(trial.outcome)}, which no trial has")
    return trial


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


@border("journal of a study")
def stored_study(path: Path, name: str = "") -> Study:
    """Return the study that a journal holds, finished or under way; an incomplete last line does not count.

    Args:
        name: how messages call it; its path where none is given.

    Raises:
        SpecError: it is no journal of a study.
    """
    name = name or str(path)
    lines = text_of_file(path, name).rpartition("\n")[0].split("\n")
    if "nearpeak_study" not in _object(lines[0], f"{name}: line 1"):
        raise SpecError(f"{name}: is no journal of a study")
    journal = StudyJournal(None, None, {})
    for number, line in enumerate(lines[1:], 2):
        journal.take(line, f"{name}: line {number}")
    if journal.study is None:
        raise SpecError(f"{name}: holds no study yet; its search states one when it begins")
    reason = journal.study.stop_reason if journal.is_stated else ""
    return replace(journal.study, trials=tuple(journal.trials), contests=tuple(journal.contests), stop_reason=reason)
