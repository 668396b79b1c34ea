"""Median time to capture a problem file in a child process, and the largest real tensor that any of them allocates."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import ROOT, Figure
from nearpeak.frontends.child_capture import capture_isolated

FIGURES = ("problem_file_median_seconds", "problem_file_largest_allocation", "problem_file_count")
FRONTEND = "nearpeak.frontends.torch.problem_file:capture_problem"
PROBLEMS = sorted((ROOT / "tests" / "fixtures" / "problems").glob("*.py"))


def measure() -> Iterator[Figure]:
    """Yield time, allocation and number of files."""
    median_s = median_time_s()
    yield Figure(name=FIGURES[0], value=median_s, unit="s", bar="<= 0.1 s in the median", passed=median_s <= 0.1)
    largest = largest_allocation_bytes()
    yield Figure(name=FIGURES[1], value=largest, unit="B", bar="<= 1 MB", passed=largest <= 1_000_000)
    yield Figure(name=FIGURES[2], value=len(PROBLEMS), unit="files", bar=">= 30", passed=len(PROBLEMS) >= 30)


def median_time_s(rounds: int = 5) -> float:
    """Return the median over files of the least time per file; the server's start is not counted."""
    times: dict[Path, list[float]] = {path: [] for path in PROBLEMS}
    capture_isolated(FRONTEND, PROBLEMS[0])
    for _ in range(rounds):
        start = time.perf_counter()
        for path in PROBLEMS:
            capture_isolated(FRONTEND, path)
            end = time.perf_counter()
            times[path].append(end - start)
            start = end
    return statistics.median(min(samples) for samples in times.values())


def largest_allocation_bytes() -> int:
    """Return the largest block that PyTorch's CPU allocator hands out during the captures."""
    from torch.profiler import ProfilerActivity, profile

    from nearpeak.frontends.torch.problem_file import capture_problem

    largest = 0
    for path in PROBLEMS:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            capture_problem(path)
        events = seen.profiler.kineto_results.events()
        largest = max([largest, *(event.nbytes() for event in events if event.name() == "[memory]")])
    return largest
