"""Public series with labels, from a folder that a user names, and how detectors are scored on them.

A folder holds, at any depth:

* `<name>.json` of the Turing Change Point Dataset, with `annotations.json` (series → annotator → indices) in the same
  tree; series of several dimensions are left out. Source of form and score: van den Burg and Williams 2020,
  arXiv:2003.06222.
* Graphs of Mozilla's Talos: JSON with a list of runs (`test_runs`, or the list itself) or CSV, each run with a push
  time and a value. The expected push times are those of Mozilla's own regression tests (shared design,
  regression.md, 10).
"""

import csv
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._series import MARGIN_COMMITS, Values, hits

VARIABLE = "NEARPEAK_LABELLED_SERIES"
Detector = Callable[[Values], Sequence[int]]
EXPECTED_PUSHES = {
    "runs1": (1365019665,), "runs2": (1357704596, 1358971894, 1365014104), "runs3": (1335293827, 1338839958),
    "runs4": (1364922838,), "runs5": (), "a11y": (1366197637, 1367799757),
    "tp5rss": (1372846906, 1373413365, 1373424974),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One series with what people marked in it."""

    name: str
    """Stem of its file."""
    values: tuple[float, ...]
    """One value for each commit or date; gaps are filled by straight lines."""
    annotations: tuple[tuple[int, ...], ...]
    """Indices that each annotator marked."""


def folder() -> Path | None:
    """Return the folder that the environment names; none where it names none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def tcpd(root: Path) -> Iterator[Labelled]:
    """Yield the series of one dimension that have annotations, by name."""
    marks: dict[str, dict[str, list[int]]] = {}
    for file in sorted(root.rglob("annotations.json")):
        marks |= json.loads(file.read_text(encoding="utf-8"))
    for file in sorted(root.rglob("*.json"), key=lambda one: one.stem):
        if file.stem not in marks:
            continue
        data = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(data, dict) and len(data.get("series", ())) == 1:
            by_person = marks[file.stem]
            annotations = tuple(tuple(sorted(by_person[who])) for who in sorted(by_person))
            yield Labelled(name=file.stem, values=_filled(data["series"][0]["raw"]), annotations=annotations)


def talos(root: Path) -> Iterator[Labelled]:
    """Yield the graphs whose expected push times are known, in the order of pushes."""
    for file in sorted(root.rglob("*")):
        if file.suffix not in {".json", ".csv"} or file.stem not in EXPECTED_PUSHES:
            continue
        runs = sorted(_runs(file))
        pushes = np.array([push for push, _ in runs])
        marked = tuple(int(np.searchsorted(pushes, one)) for one in EXPECTED_PUSHES[file.stem])
        yield Labelled(name=file.stem, values=tuple(value for _, value in runs), annotations=(marked,))


def _runs(file: Path) -> list[tuple[float, float]]:
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.reader(lines) if len(row) >= 2 and _is_number(row[0]) and _is_number(row[-1])]
        return [(float(row[0]), float(row[-1])) for row in rows]
    data = json.loads(file.read_text(encoding="utf-8"))
    runs = data["test_runs"] if isinstance(data, dict) else data
    return [_run(one) for one in runs]


def _run(one: Sequence[object] | Mapping[str, object]) -> tuple[float, float]:
    """Return push time and value of a run: a mapping, or the list [id, build, push time, value] of graphserver."""
    if isinstance(one, Mapping):
        push = next(one[key] for key in ("push_timestamp", "push_time", "timestamp", "time") if key in one)
        return float(str(push)), float(str(one["value"]))
    return (float(str(one[2])), float(str(one[3]))) if len(one) > 3 else (float(str(one[0])), float(str(one[-1])))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _filled(raw: Sequence[float | None]) -> tuple[float, ...]:
    values = np.array([np.nan if one is None else float(one) for one in raw])
    known = np.flatnonzero(np.isfinite(values))
    return tuple(np.interp(np.arange(values.size), known, values[known]).tolist())


def positive(values: Values) -> Values:
    """Return values whose logarithms exist: moved up where one is 0 or less."""
    return values if values.min() > 0 else values - values.min() + 0.1 * (np.ptp(values) or 1.0)


def f1(one: Labelled, found: Sequence[int]) -> float:
    """Return the score of van den Burg and Williams: precision against all marks, recall as the mean over people.

    Index 0 counts as marked and as found, so that no detection at all scores above 0.

    >>> f1(Labelled(name="a", values=(1.0,) * 50, annotations=((20,), ())), [20])
    1.0
    """
    told = [0, *found]
    sets = [[0, *marks] for marks in one.annotations]
    everything = sorted({mark for marks in sets for mark in marks})
    precision = hits(told, everything, MARGIN_COMMITS) / len(set(told))
    recall = float(np.mean([hits(told, marks, MARGIN_COMMITS) / len(set(marks)) for marks in sets]))
    return 2 * precision * recall / (precision + recall)


def covering(one: Labelled, found: Sequence[int]) -> float:
    """Return how well the found segments cover the marked ones, as the mean over people.

    >>> covering(Labelled(name="a", values=(1.0,) * 40, annotations=((20,),)), [])
    0.5
    """
    size = len(one.values)
    ours = _segments(found, size)
    return float(np.mean([_covered(_segments(marks, size), ours, size) for marks in one.annotations]))


def _segments(marks: Sequence[int], size: int) -> list[tuple[int, int]]:
    edges = sorted({0, size, *(mark for mark in marks if 0 < mark < size)})
    return list(itertools.pairwise(edges))


def _covered(theirs: list[tuple[int, int]], ours: list[tuple[int, int]], size: int) -> float:
    total = 0.0
    for a, b in theirs:
        best = max((max(0, min(b, d) - max(a, c)) / (max(b, d) - min(a, c)) for c, d in ours), default=0.0)
        total += (b - a) * best
    return total / size
