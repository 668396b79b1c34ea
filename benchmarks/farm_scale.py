"""Ten thousand predictions on two workers of the farm, against plain processes that do nothing else, in one run."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks._farm import Farm
from benchmarks._figures import Figure

FIGURES = ("farm_efficiency", "farm_speedup", "farm_cpu_efficiency", "farm_predictions_rate", "farm_submit_time")
JOBS, WORKERS, BATCH, PLAIN = 10_000, 2, 625, 2_500
_PLAIN = """
import json, sys, time
from nearpeak.farm.kinds import KINDS
from nearpeak.farm.kinds.predict import preload
preload()
run = KINDS["predict"].run
lines = list(open(sys.argv[1]))[: int(sys.argv[2])]
print("ready", flush=True)
sys.stdin.readline()
begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
found = [json.dumps(run(json.loads(line)["payload"])) for line in lines]
print(time.perf_counter() - begun_s, time.process_time() - begun_cpu_s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured."""

    farm_per_s: float
    """Predictions a second on the farm's workers."""
    both_per_s: float
    """Predictions a second of as many plain processes side by side."""
    alone_per_s: float
    """Predictions a second of one plain process."""
    farm_cpu_s: float
    """CPU time of all processes of the farm for all predictions."""
    plain_cpu_s: float
    """CPU time of one prediction in the plain processes side by side."""
    submit_s: float
    """Time to submit all."""


def measure() -> Iterator[Figure]:
    """Yield how much of two plain processes' work two workers do, by wall time and by CPU time.

    Plain processes, one each for the workers, and one alone, run before and after the farm, so that a change of the
    machine's load shows in both. All CPU time of the farm counts, dispatcher and scheduler too, from the first job to
    the last.
    """
    with tempfile.TemporaryDirectory() as name:
        found = _measured(Path(name))
    efficiency, speedup = found.farm_per_s / found.both_per_s, found.farm_per_s / found.alone_per_s
    by_cpu = JOBS * found.plain_cpu_s / found.farm_cpu_s
    bar = ">= 0.9"
    yield Figure(name="farm_efficiency", value=efficiency, unit="", bar=bar, passed=efficiency >= 0.9)
    yield Figure(name="farm_speedup", value=speedup, unit="", bar=">= 1.8", passed=speedup >= 1.8)
    yield Figure(name="farm_cpu_efficiency", value=by_cpu, unit="", bar="", passed=True)
    yield Figure(name="farm_predictions_rate", value=found.farm_per_s, unit="jobs/s", bar="", passed=True)
    yield Figure(name="farm_submit_time", value=found.submit_s, unit=f"s for {JOBS} jobs", bar="", passed=True)


def _measured(folder: Path) -> Rates:
    warm, file = folder / "warm.jsonl", folder / "jobs.jsonl"
    _write(warm, 2 * WORKERS, 3_000_000)
    _write(file, JOBS, 0)
    before = _plain(file, WORKERS), _plain(file, 1)
    farm_s, cpu_s, submit_s = _on_farm(folder, warm, file)
    after = _plain(file, WORKERS), _plain(file, 1)
    return Rates(
        farm_per_s=JOBS / farm_s, both_per_s=2 * WORKERS * PLAIN / (before[0][0] + after[0][0]),
        alone_per_s=2 * PLAIN / (before[1][0] + after[1][0]), farm_cpu_s=cpu_s, submit_s=submit_s,
        plain_cpu_s=(before[0][1] + after[0][1]) / (2 * WORKERS * PLAIN),
    )  # fmt: skip


def _on_farm(folder: Path, warm: Path, file: Path) -> tuple[float, float, float]:
    """Return wall and CPU time of all predictions on a farm that runs, and the time to submit them."""
    farm = Farm(folder, 0)
    try:
        farm.workers.append(farm.lend(WORKERS))
        farm.put(warm, 1)
        farm.until_done(2 * WORKERS, 300.0)  # every slot has its warmed process
        farm.drain()
        begun_s = time.perf_counter()
        farm.put(file, BATCH)
        submit_s, before_s = time.perf_counter() - begun_s, farm.cpu_s()
        farm.drain("--undo")
        begun_s = time.perf_counter()
        farm.until_done(2 * WORKERS + JOBS, 1200.0)
        return time.perf_counter() - begun_s, farm.cpu_s() - before_s, submit_s
    finally:
        farm.close()


def _write(file: Path, count: int, first: int) -> None:
    """Write predictions of products of matrices, each of another size."""
    from nearpeak.ops import case

    with file.open("w") as out:
        for number in range(first, first + count):
            made = case("gemm", m=64 + number % 4096, n=64 + number // 4096, k=4096, dtype="bf16")
            payload = {"case": made.record(), "target": "h100_sxm"}
            out.write(json.dumps({"kind": "predict", "payload": payload}) + "\n")


def _plain(file: Path, count: int) -> tuple[float, float]:
    """Return the wall time until all of `count` processes have made their predictions, and their CPU time together."""
    words = [sys.executable, "-c", _PLAIN, str(file), str(PLAIN)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(count)
    ]
    for one in processes:
        assert one.stdout is not None
        one.stdout.readline()
    begun_s = time.perf_counter()
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    times = [list(map(float, one.communicate()[0].split())) for one in processes]
    return time.perf_counter() - begun_s, sum(one[1] for one in times)
