"""Problem files of all four levels, captured in both modes: how many, how fast, in how much memory."""

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._figures import ROOT, Figure
from benchmarks.problem_corpus import write_all

FIGURES = (
    "problem_corpus_captured", "problem_corpus_uncovered_calls", "problem_corpus_memory",
    "problem_level_1_2_median_seconds", "problem_level_3_median_seconds", "problem_level_4_slowest_seconds",
)  # fmt: skip
RECORDS = ROOT / "docs" / "lab" / "problem_files.json"
"""How many problems of each level were captured, and each miss with its cause: for the page of coverage."""
_IMPORTED = ("torch", "transformers", "torch._dynamo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One capture in a process of its own."""

    level: int
    """Level of the problem."""
    name: str
    """File and mode."""
    cpu_s: float
    """Processor time of the capture alone."""
    memory_bytes: int
    """Largest resident size of the process, imports included."""
    failure: str
    """Why it was not captured; empty when it was."""
    uncovered: dict[str, int]
    """Calls without a rule, by name."""


def measure() -> Iterator[Figure]:
    """Yield count, uncovered calls, memory and times."""
    runs = all_runs()
    RECORDS.write_text(json.dumps(record(runs), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for run in runs:
        if run.failure or run.uncovered:
            print(f"{run.name}: {run.failure or run.uncovered}")
    good = sum(not run.failure for run in runs)
    yield Figure(
        name=FIGURES[0],
        value=good,
        unit=f"of {len(runs)}",
        bar="every problem, in both modes",
        passed=good == len(runs),
    )
    uncovered = sum((Counter(run.uncovered) for run in runs), Counter())
    yield Figure(name=FIGURES[1], value=sum(uncovered.values()), unit="calls", bar="none", passed=not uncovered)
    memory = max(run.memory_bytes for run in runs) / 1e6
    yield Figure(name=FIGURES[2], value=memory, unit="MB", bar="< 600 MB", passed=memory < 600)
    median_s = statistics.median(run.cpu_s for run in runs if run.level < 3)
    yield Figure(name=FIGURES[3], value=median_s, unit="CPU s", bar="<= 0.1 s", passed=median_s <= 0.1)
    for name, level, bar_s in ((FIGURES[4], 3, 1.0), (FIGURES[5], 4, 10.0)):
        times = [run.cpu_s for run in runs if run.level == level]
        found_s = statistics.median(times) if level == 3 else max(times)
        yield Figure(name=name, value=found_s, unit="CPU s", bar=f"<= {bar_s:g} s", passed=found_s <= bar_s)


def record(runs: list[Run]) -> dict[str, Any]:
    """Return counts by level, and the captures that failed or have calls without a rule by their cause."""
    levels: dict[str, dict[str, int]] = {}
    missed: dict[str, list[str]] = {}
    for run in runs:
        row = levels.setdefault(str(run.level), {"files": 0, "captures": 0, "captured": 0})
        row["files"] += run.name.endswith("evaluation")
        row["captures"] += 1
        row["captured"] += not run.failure
        for cause in [run.failure] if run.failure else [f"no rule for {name}" for name in sorted(run.uncovered)]:
            missed.setdefault(cause, []).append(run.name)
    return {"levels": levels, "missed": missed}


def all_runs() -> list[Run]:
    """Capture every problem in evaluation mode and as its file builds it (training, but for pretrained models)."""
    for module in _IMPORTED:
        __import__(module)
    with tempfile.TemporaryDirectory() as folder:
        files = write_all(Path(folder) / "problems")
        _captured(files[1][0], training=False)  # here, as children inherit what a first capture imports
        return [
            _forked(level, path, training=training)
            for level, paths in files.items() for path in paths for training in (False, None)
        ]  # fmt: skip


def _forked(level: int, path: Path, *, training: bool | None) -> Run:
    """Capture one problem in a child of this process, whose imports it finds done."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as answer:
            json.dump(_captured(path, training=training), answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    _, _, usage = os.wait4(child, 0)
    found = json.loads(text) if text else {"cpu_s": usage.ru_utime, "failure": "the process ended", "uncovered": {}}
    name = f"level {level}, {path.stem}, {'as built' if training is None else 'evaluation'}"
    return Run(level=level, name=name, memory_bytes=usage.ru_maxrss * 1024, **found)


def _captured(path: Path, *, training: bool | None) -> dict[str, Any]:
    from nearpeak.core.work.capture_options import CaptureOptions
    from nearpeak.errors import NearpeakError
    from nearpeak.frontends.torch.problem_file import capture_problem

    start_s, failure, uncovered = time.process_time(), "", {}
    try:
        uncovered = dict(capture_problem(path, CaptureOptions(training=training)).uncovered_counts())
    except NearpeakError as error:
        failure = str(error)
    return {"cpu_s": time.process_time() - start_s, "failure": failure, "uncovered": uncovered}
