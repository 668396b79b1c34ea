"""Median time to capture a problem file in a child process, and the largest real tensor that any of them allocates."""

import json
import statistics
import time
from pathlib import Path

from nearpeak.capture._isolation import capture_many
from nearpeak.errors import NearpeakError

PROBLEMS = sorted((Path(__file__).parents[1] / "tests" / "fixtures" / "problems").glob("*.py"))


def median_time_s(rounds: int = 3) -> float:
    """Return the median over files of the least time per file; the server's start is not counted."""
    times: dict[Path, list[float]] = {path: [] for path in PROBLEMS}
    next(iter(capture_many(PROBLEMS[:1])))
    for _ in range(rounds):
        start = time.perf_counter()
        for path, found in capture_many(PROBLEMS):
            if isinstance(found, NearpeakError):
                raise found
            end = time.perf_counter()
            times[path].append(end - start)
            start = end
    return statistics.median(min(samples) for samples in times.values())


def largest_allocation_bytes() -> int:
    """Return the largest block that PyTorch's CPU allocator hands out during the captures."""
    from torch.profiler import ProfilerActivity, profile

    from nearpeak.capture.problem_file import capture_problem

    largest = 0
    for path in PROBLEMS:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            capture_problem(path)
        events = seen.profiler.kineto_results.events()
        largest = max([largest, *(event.nbytes() for event in events if event.name() == "[memory]")])
    return largest


def main() -> None:
    """Print one JSON line per figure."""
    figures = (
        ("problem_file_capture_median", median_time_s(), "s"),
        ("problem_file_largest_allocation", largest_allocation_bytes(), "B"),
        ("problem_files", len(PROBLEMS), "files"),
    )
    for name, value, unit in figures:
        print(json.dumps({"name": name, "value": value, "unit": unit}))


if __name__ == "__main__":
    main()
