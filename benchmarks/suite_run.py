"""Runs over many cases: kill -9 at random moments, cases that end badly, and what the harness adds to the samples."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks._figures import ROOT, Figure
from benchmarks._signals import small_cases
from nearpeak.api.measured_analysis import measure as measure_cases
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.measurement.result_file import read_results

FIGURES = (
    "kills_with_a_loss",
    "kills_cases_repeated",
    "bad_cases_without_a_row",
    "overhead_per_case",
    "overhead_cpu_per_case",
)
KILLS, RUN_CASES, CASES, BAD = 200, 400, 1000, 20
QUICK = Timing(
    budget_s=0.005, least_count=2, flush_bytes=0, cache="hot", validate=False, limit_s=10.0, memory_bytes=1 << 29
)
_RUN = """
import sys
sys.path[:0] = [{root!r}]
from pathlib import Path
from benchmarks._signals import small_cases
from benchmarks.suite_run import QUICK
from nearpeak.api.measured_analysis import measure
told = open({told!r}, "ab", buffering=0)
for found in measure(small_cases({count}), "callable:benchmarks._signals:noted", QUICK, out=Path({out!r})):
    told.write((found.case.digest + "\\n").encode())
"""


def measure() -> Iterator[Figure]:
    """Yield what 200 kills lost and repeated, bad cases without a row, and the overhead per case."""
    lost, repeated = kills(KILLS, seed=0)
    yield Figure(name="kills_with_a_loss", value=lost, unit=f"of {KILLS} kills", bar="0", passed=lost == 0, seed=0)
    yield Figure(
        name="kills_cases_repeated",
        value=repeated,
        unit="cases a kill at most",
        bar="<= 1",
        passed=repeated <= 1,
        seed=0,
    )
    missing = bad_cases(BAD)
    yield Figure(name="bad_cases_without_a_row", value=missing, unit=f"of {BAD} cases", bar="0", passed=missing == 0)
    for name, added_s in zip(("overhead_per_case", "overhead_cpu_per_case"), overhead_s(CASES), strict=True):
        yield Figure(name=name, value=1e3 * added_s, unit="ms", bar="<= 25 ms a case", passed=added_s <= 0.025)


def kills(count: int, seed: int) -> tuple[int, int]:
    """Return how many of `count` kills lost, doubled or damaged a result, and how many cases one had run again at most.

    A run is killed at a random moment, from its start to well into its cases, and started again on the same file,
    which is begun anew when it is complete. What was yielded was on disk before, so that it must be found again, once;
    what ran and is not in the file runs again.
    """
    draw, lost, most = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        place, begun_s = Path(folder), _start_up_s(Path(folder) / "first")
        epoch = 0
        for number in range(count):
            bad, again = _killed(place / str(epoch), draw.uniform(0.1, 3 * begun_s))
            lost, most = lost + bad, max(most, again)
            print(f"  kill {number + 1}/{count}: {lost} with a loss, {most} cases again at most", flush=True)
            epoch += _stored(place / str(epoch)) >= RUN_CASES
    return lost, most


def _start_up_s(place: Path) -> float:
    """Return how long a run takes to store its first result, so that kills fall before and after it alike."""
    begun_s, process = time.monotonic(), _started(place)
    while not _lines(place / "told"):
        time.sleep(0.01)
    process.kill()
    process.wait()
    return time.monotonic() - begun_s


def _started(place: Path) -> "subprocess.Popen[bytes]":
    place.mkdir(exist_ok=True)
    code = _RUN.format(root=str(ROOT), told=str(place / "told"), out=str(place / "out.jsonl"), count=RUN_CASES)
    environment = {**os.environ, "NEARPEAK_STARTS": str(place / "starts")}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=ROOT, env=environment)


def _killed(place: Path, after_s: float) -> tuple[bool, int]:
    """Return whether a kill after some seconds lost a result, and how many cases had to run again by then.

    How many runs there were beyond one for each case, less those that earlier kills account for, is what this run had
    to do again: at most the case that was in flight.
    """
    before = _repeated(place)
    process = _started(place)
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    try:
        kept = Counter(one.case.digest for one in read_results(place / "out.jsonl")) if _stored(place) else Counter()
    except NearpeakError:
        return True, 0
    told = set(_lines(place / "told"))
    return bool(told - set(kept)) or max(kept.values(), default=1) > 1, _repeated(place) - before


def _repeated(place: Path) -> int:
    """Return how many runs of cases there were beyond the first of each."""
    starts = Counter(_lines(place / "starts"))
    return sum(starts.values()) - len(starts)


def _stored(place: Path) -> int:
    return sum('"kind":"measurement"' in line for line in _lines(place / "out.jsonl"))


def _lines(path: Path) -> list[str]:
    """Return the whole lines of a file, none where it does not exist."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def bad_cases(count: int) -> int:
    """Return how many of `count` cases, four fifths of which end badly, have no row that says how they ended."""
    wanted = ("budget", "crash", "timeout", "oom", "crash")
    patient = replace(QUICK, limit_s=30.0)  # filling the memory may take seconds beside other load
    wrong = 0
    for number, one in enumerate(measure_cases(small_cases(count), "callable:benchmarks._signals:bad", patient)):
        found = {"converged": "budget"}.get(one.outcome.value, one.outcome.value)
        if found != wanted[number % 5]:
            print(f"  {one.case.label()}: {found} instead of {wanted[number % 5]}: {one.note}", flush=True)
            wrong += 1
    return wrong


def overhead_s(count: int) -> tuple[float, float]:
    """Return wall and CPU time per case that are neither samples nor warm-up, for `count` small cases stored in a file.

    Beside other load the wall time counts every wait for the processor; the CPU time does not.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, runner = Path(folder) / "results.jsonl", "callable:benchmarks._signals:softmax"
        list(measure_cases(small_cases(20), runner, QUICK))  # the warmed process is started once, whatever the count
        start_s, start_cpu_s, sampled_s, sampled_cpu_s = time.perf_counter(), _cpu_s(), 0.0, 0.0
        for one in measure_cases(small_cases(count), runner, QUICK, out=out):
            share = 1 + len(one.warmup_s) / len(one.samples_s)
            sampled_s += (sum(one.samples_s) + sum(one.warmup_s)) * one.call_count
            sampled_cpu_s += share * sum(one.cpu_samples_s) * one.call_count
        wall_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
        return (wall_s - sampled_s) / count, (cpu_s - sampled_cpu_s) / count


def _cpu_s() -> float:
    """Return the CPU time of this process, its children and theirs that have ended."""
    children = Path("/proc/self/task").glob("*/children")
    pids = ["self", *" ".join(file.read_text(encoding="utf-8") for file in children).split()]
    stats = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[place]) for stat in stats for place in range(11, 15)) / os.sysconf("SC_CLK_TCK")
