"""A grid of 10,000 simulated services on the farm: 8 simulated hosts against 8 plain processes.

Hosts are slots of one machine, each a process of its own, so that both sides share the same cores: the ratio is what
queue, transfer and storage of the farm cost beside the work. Beside wall time stands CPU time, which other work on the
machine hardly touches: that of all processes of the farm, scheduler and dispatcher too.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from benchmarks._farm import Farm
from benchmarks._figures import Figure

FIGURES = ("serving_grid_efficiency", "serving_grid_cpu_efficiency", "serving_grid_rate")
JOBS, HOSTS, BATCH, PLAIN = 10_000, 8, 1_250, 1_600
"""Jobs of the farm, hosts, jobs of one batch, and jobs of the plain processes together.

Of the plain ones the second half is timed: the first fills each process's tables of steps, which the farm's hosts
fill once in 1,250 jobs.
"""
SERVICE = {"input_tokens": 512, "output_tokens": 128}
"""Tokens of a usual chat request: a service takes 40 ms of one core, its process's tables 9 s once.

Services of 64 and 16 tokens take 7 ms: in batches of 200 their tables cost more than they do (efficiency 0.43).
"""
BAR = 0.8
_PLAIN = """
import json, sys, time
from nearpeak.farm.kinds import KINDS
run = KINDS["serve"].run
payloads = [json.loads(line)["payload"] for line in open(sys.argv[1])][int(sys.argv[2]) :: int(sys.argv[3])]
half = len(payloads) // 2
for payload in payloads[:half]:
    run(payload)
print("ready", flush=True)
sys.stdin.readline()
begun_s = time.process_time()
for payload in payloads[half:]:
    json.dumps(run(payload))
print(time.process_time() - begun_s)
"""


def measure() -> Iterator[Figure]:
    """Yield the farm's rate over that of plain processes, by wall time and by CPU time, and the rate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm, some, all_jobs = folder / "warm.jsonl", folder / "some.jsonl", folder / "jobs.jsonl"
        write(warm, 2 * HOSTS, first=JOBS)
        write(some, PLAIN)
        write(all_jobs, JOBS)
        before = plain(some)
        farm_s, farm_cpu_s = on_farm(folder, warm, all_jobs)
        after = plain(some)
    plain_s, plain_cpu_s = ((first + last) / PLAIN for first, last in zip(before, after, strict=True))
    efficiency, by_cpu = JOBS * plain_s / farm_s, JOBS * plain_cpu_s / farm_cpu_s
    yield Figure(name="serving_grid_efficiency", value=efficiency, unit=f"at {HOSTS} simulated hosts",
                 bar=f">= {BAR}", passed=efficiency >= BAR)  # fmt: skip
    yield Figure(
        name="serving_grid_cpu_efficiency", value=by_cpu, unit=f"at {HOSTS} simulated hosts", bar="", passed=True
    )
    yield Figure(name="serving_grid_rate", value=JOBS / farm_s, unit="services/s", bar="", passed=True)


def write(file: Path, count: int, first: int = 0) -> None:
    """Write services of a small model: clients, tokens of prompts, policies and seeds; step times are one table."""
    lengths = range(SERVICE["input_tokens"], 2 * SERVICE["input_tokens"], SERVICE["input_tokens"] // 4)
    grid = product(range(10_000), (2, 4, 8, 16, 32), lengths, ("", ",prefix_cache=32"))
    with file.open("w", encoding="utf-8") as out:
        for seed, clients, tokens, more in islice(grid, first, first + count):
            payload = {
                "model": "llama-3.2-1b", "on": "1xh100_sxm", "tp": 1, "settings": f"chunk=512,max_batch=16{more}",
                "concurrency": clients, **SERVICE, "input_tokens": tokens, "seed": seed,
            }  # fmt: skip
            out.write(json.dumps({"kind": "serve", "payload": payload}) + "\n")


def plain(file: Path) -> tuple[float, float]:
    """Return wall and CPU time in which plain processes, one for each host, do the second half of a file's jobs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, "-c", _PLAIN, str(file), str(place), str(HOSTS)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True, env=environment) for place in range(HOSTS)
    ]  # fmt: skip
    for one in processes:
        assert one.stdout is not None
        one.stdout.readline()
    begun_s = time.perf_counter()
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    cpu_s = sum(float(one.communicate()[0]) for one in processes)
    return time.perf_counter() - begun_s, cpu_s


def on_farm(folder: Path, warm: Path, file: Path) -> tuple[float, float]:
    """Return wall and CPU time of all jobs on a farm whose processes have predicted their tables before."""
    farm = Farm(folder, 0)
    try:
        farm.workers.append(farm.lend(HOSTS))
        farm.put(warm, 1)
        farm.until_done(2 * HOSTS, 600.0)
        farm.drain()
        farm.put(file, BATCH)
        before_s = farm.cpu_s()
        farm.drain("--undo")
        begun_s = time.perf_counter()
        farm.until_done(2 * HOSTS + JOBS, 3600.0)
        return time.perf_counter() - begun_s, farm.cpu_s() - before_s
    finally:
        farm.close()
