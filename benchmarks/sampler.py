"""What the sampler takes of a core, and whether a case beside it takes longer.

Sensors are generated trees of small files and a library with NVML's names that takes the processor for as long as the
driver of an H200 does (`_nvml.c`): what the kernel adds for files of real sensors is left out.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

from tests.unit.measurement.telemetry.trees import BOARD, CORES, ORIN, RAPL, write

from benchmarks._figures import ROOT, Figure
from nearpeak.core.runs.measurement import Timing
from nearpeak.measurement.isolated_measurement import measure_fresh
from nearpeak.measurement.telemetry.sampler_client import Sampler
from nearpeak.ops import case

FIGURES = (
    "sampler_at_100_hz_core_share", "sampler_wake_up_core_share", "sampler_at_10_hz_core_share",
    "sampler_observer_effect",
)  # fmt: skip
SECONDS_S, WINDOWS = 5.0, 5
"""Length of a window and how many there are: the median is given, as a neighbour's work makes a wake-up dearer."""
FAST = ("rapl", "cpu_clock", "nvml_power")
"""Power, clocks and throttle reasons."""
SLOW = (*FAST, "nvml_energy", "nvml_state", "rails", "hwmon", "thermal", "devfreq", "host")
"""Everything that a generated tree can show; what `host` reads are this system's own files."""
OWN = ("proc", "sys/block")
CASE = case("gemm", m=256, n=256, k=256, dtype="fp32")
TIMING = Timing(cache="hot", budget_s=0.3, validate=False)
FOURS = 10
_SLEEPER = """
import time
start = time.monotonic()
for number in range(1, {count} + 1):
    time.sleep(max(0.0, start + number / {rate} - time.monotonic()))
    if number == {rate}:
        begin = time.process_time(), time.monotonic()
print((time.process_time() - begin[0]) / (time.monotonic() - begin[1]))
"""
"""Prints the part of a core that waking up alone takes: what no sampler of this rate in Python can go below here."""


def measure() -> Iterator[Figure]:
    """Yield shares of a core by the sampler's own CPU time, and the change of a case's CPU time beside it."""
    with tempfile.TemporaryDirectory() as text:
        root = str(Path(text) / "root")
        write(Path(root), {**RAPL, **CORES, **BOARD, **ORIN})
        for name in OWN:
            (Path(root) / name).symlink_to(Path("/") / name)
        with _nvml_in(Path(text)):
            yield _share("sampler_at_100_hz_core_share", 100, FAST, root, 2.0)
            yield _woken(100)
            yield _share("sampler_at_10_hz_core_share", 10, SLOW, root, 1.0)
            yield _observed(root)


def _nvml_in(folder: Path) -> AbstractContextManager[object]:
    """Let processes that begin here find the generated NVML before one that is there."""
    library, source = folder / "libnvidia-ml.so.1", ROOT / "benchmarks" / "_nvml.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    paths = filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH")))
    return patch.dict(os.environ, {"LD_LIBRARY_PATH": os.pathsep.join(paths)})


def _share(name: str, rate_hz: float, sources: Sequence[str], root: str, most: float) -> Figure:
    with Sampler(rate_hz, sources, root) as sampler:
        found = statistics.median(share(sampler) for _ in range(WINDOWS))
    return Figure(name=name, value=100 * found, unit="%", bar=f"<= {most:g} %", passed=100 * found <= most)


def _woken(rate_hz: int) -> Figure:
    """Return what a process takes that wakes up as often and does nothing: the part that the machine sets."""
    program = _SLEEPER.format(rate=rate_hz, count=rate_hz * (1 + round(SECONDS_S)))
    command = [sys.executable, "-I", "-S", "-c", program]
    shares = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(WINDOWS)]
    print(f"  waking up alone: {', '.join(f'{one:.2%}' for one in shares)}", flush=True)
    value = 100 * statistics.median(shares)
    return Figure(name="sampler_wake_up_core_share", value=value, unit="%", bar="", passed=True)


def share(sampler: Sampler) -> float:
    """Return the part of a core that the sampler takes, all sources read.

    Raises:
        RuntimeError: one of its sources was not there.
    """
    if sampler.unavailable:
        raise RuntimeError(f"{sampler.unavailable[0][0]}: {sampler.unavailable[0][1]}")
    begin_ns = time.monotonic_ns()
    time.sleep(SECONDS_S)
    found = sampler.window(begin_ns, time.monotonic_ns())
    print(
        f"  {found.rate_hz:g} Hz: {found.cpu_s / found.window_s:.2%}, {found.missed_count} rounds left out", flush=True
    )
    return found.cpu_s / found.window_s


def _observed(root: str) -> Figure:
    """Return the median over rounds of four of the change of a case's CPU time: without, with, with, without."""
    changes = []
    for number in range(FOURS):
        order = (0, 1, 1, 0) if number % 2 == 0 else (1, 0, 0, 1)
        times = [_cpu_s(root, sampled=bool(one)) for one in order]
        sums = [sum(time_s for one, time_s in zip(order, times, strict=True) if one == arm) for arm in (0, 1)]
        changes.append(sums[1] / sums[0] - 1)
    value = 100 * statistics.median(changes)
    print(f"  rounds: {', '.join(f'{one:+.2%}' for one in changes)}", flush=True)
    return Figure(name="sampler_observer_effect", value=value, unit="%", bar="<= 1 %", passed=value <= 1)


def _cpu_s(root: str, *, sampled: bool) -> float:
    """Return the shortest CPU time of the case in a new process, beside a sampler or not."""
    if not sampled:
        return measure_fresh(CASE, "torch_cpu", TIMING).cpu_low_s
    with Sampler(100, FAST, root):
        return measure_fresh(CASE, "torch_cpu", TIMING).cpu_low_s
