"""Ten thousand predictions on two workers of the farm, against a process that does nothing else, in the same run."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._farm import Farm
from benchmarks._figures import Figure

FIGURES = ("farm_efficiency", "farm_cpu_efficiency", "farm_predictions_rate", "farm_submit_time")
JOBS, WORKERS, BATCH, PLAIN = 10_000, 2, 500, 3_000
_PLAIN = """
import json, sys, time
from nearpeak.farm.kinds import KINDS
from nearpeak.farm.warm import predictions
predictions()
run = KINDS["predict"].run
payloads = [json.loads(line)["payload"] for line in open(sys.argv[1])][: int(sys.argv[2])]
begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
for one in payloads:
    run(one)
print(time.perf_counter() - begun_s, time.process_time() - begun_cpu_s)
"""


def measure() -> Iterator[Figure]:
    """Yield how much of two processes' work two workers do, by wall time and by CPU time.

    The plain process runs before and after the farm, so that a change of the machine's load shows in both; what is
    compared are rates. All CPU time of the farm counts, dispatcher and scheduler too, from the first to the last job.
    """
    with tempfile.TemporaryDirectory() as name:
        found = _measured(Path(name))
    rate, cpu_s, plain_rate, plain_cpu_s, submit_s = found
    efficiency, by_cpu = rate / (WORKERS * plain_rate), JOBS * plain_cpu_s / cpu_s
    bar = ">= 0.9"
    yield Figure(name="farm_efficiency", value=efficiency, unit="", bar=bar, passed=efficiency >= 0.9)
    yield Figure(name="farm_cpu_efficiency", value=by_cpu, unit="", bar=bar, passed=by_cpu >= 0.9)
    yield Figure(name="farm_predictions_rate", value=rate, unit="jobs/s", bar="", passed=True)
    yield Figure(name="farm_submit_time", value=submit_s, unit=f"s for {JOBS} jobs", bar="", passed=True)


def _measured(folder: Path) -> tuple[float, float, float, float, float]:
    """Return rate and CPU time of the farm, rate and CPU time per job of a plain process, and time to submit."""
    from nearpeak.store import open_store

    open_store(folder / "store.db", create=True).close()
    warm, file = folder / "warm.jsonl", folder / "jobs.jsonl"
    _write(warm, 2 * WORKERS, 3_000_000)
    _write(file, JOBS, 0)
    plain = [_plain(file)]
    farm = Farm(folder, 0)
    try:
        farm.workers.append(farm.lend(WORKERS))
        farm.put(warm, 1)
        farm.until_done(2 * WORKERS, 300.0)  # every slot has its warmed process
        begun_s = time.perf_counter()
        farm.drain()
        farm.put(file, BATCH)
        submit_s, before_s = time.perf_counter() - begun_s, farm.cpu_s()
        begun_s = time.perf_counter()
        farm.drain("--undo")
        farm.until_done(2 * WORKERS + JOBS, 1200.0)
        rate, cpu_s = JOBS / (time.perf_counter() - begun_s), farm.cpu_s() - before_s
    finally:
        farm.close()
    plain.append(_plain(file))
    time_s, used_s = (sum(one[place] for one in plain) / (2 * PLAIN) for place in (0, 1))
    return rate, cpu_s, 1 / time_s, used_s, submit_s


def _write(file: Path, count: int, first: int) -> None:
    """Write predictions of products of matrices, each of another size."""
    from nearpeak.ops import case

    with file.open("w") as out:
        for number in range(first, first + count):
            made = case("gemm", m=64 + number % 4096, n=64 + number // 4096, k=4096, dtype="bf16")
            payload = {"case": made.record(), "target": "h100_sxm"}
            out.write(json.dumps({"kind": "predict", "payload": payload}) + "\n")


def _plain(file: Path) -> tuple[float, float]:
    """Return wall and CPU time of some of the predictions in a process that does nothing else."""
    words = [sys.executable, "-c", _PLAIN, str(file), str(PLAIN)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    wall_s, cpu_s = map(float, done.stdout.split())
    return wall_s, cpu_s
