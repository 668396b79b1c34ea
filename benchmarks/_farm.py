"""A farm of processes that die: workers killed at random, the scheduler restarted, and what became of every job."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks._figures import ROOT
from nearpeak.store import open_store

TTL_S = 4
_LOGGED = """
import os, sys, time
where = os.environ["NEARPEAK_FARM_DEVICE"]
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(file, f"{sys.argv[2]} {where} in {time.monotonic()}\\n".encode())
time.sleep(float(sys.argv[3]))
os.write(file, f"{sys.argv[2]} {where} out {time.monotonic()}\\n".encode())
print("1 ms")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a farm under attack left."""

    job_count: int
    """Jobs that were submitted."""
    accepted_count: int
    """Jobs with exactly one accepted result, and no other."""
    twice_count: int
    """Results beyond the first of a job, in the table of results or among accepted attempts."""
    overlap_count: int
    """Times that two programs were on one device at once, or two attempts held it."""
    lost_count: int
    """Jobs without a result."""
    kill_count: int
    """Workers that were killed."""
    restart_count: int
    """Times that scheduler and dispatcher were killed and started again."""
    again_count: int
    """Executions beyond the first of each job."""
    seconds_s: float
    """Until all were done."""


class Farm:
    """A scheduler with its dispatcher, and workers with one device each, as processes."""

    def __init__(self, folder: Path, worker_count: int, place: str = "") -> None:
        self.place, self._folder = place or str(folder / "store.db"), folder
        self._opened = open_store(self.place, create=True)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
                             "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}  # fmt: skip
        self.address = f"127.0.0.1:{_free_port()}"
        self.head = self._start("up", "--executor", "dask", "--listen", self.address)
        self.workers = [self.worker(number) for number in range(worker_count)]

    def worker(self, number: int) -> "subprocess.Popen[bytes]":
        """Start the worker of a device."""
        return self._start("join", f"tls://{self.address}", "--device", f"fake-{number}")

    def restart_head(self) -> None:
        """Kill scheduler and dispatcher, and start them again."""
        self.head.kill()
        self.head.wait()
        self.head = self._start("up", "--executor", "dask", "--listen", self.address)

    def _start(self, command: str, *words: str) -> "subprocess.Popen[bytes]":
        more = ["--ttl", f"{TTL_S} s"] if command == "up" else []
        line = [sys.executable, "-m", "nearpeak", "farm", command, *words, "--store", self.place, *more]
        log = (self._folder / f"{command}.log").open("ab")
        return subprocess.Popen(line, env=self._environment, cwd=ROOT, stdout=log, stderr=log)

    def lend(self, slot_count: int) -> "subprocess.Popen[bytes]":
        """Start a worker with slots for small jobs, each with a process of its own."""
        return self._start("join", f"tls://{self.address}", "--slots", str(slot_count))

    def submit(self, job_count: int, log: Path, seconds: float) -> None:
        """Put programs into the queue that say when they begin and end."""
        file = self._folder / "jobs.jsonl"
        script = self._folder / "program.py"
        script.write_text(_LOGGED)
        with file.open("w") as out:
            for number in range(job_count):
                words = [sys.executable, "-S", str(script), str(log), str(number), str(seconds)]
                out.write(json.dumps({"kind": "command", "payload": {"words": words, "limit_s": 60}}) + "\n")
        self.put(file, 1)

    def put(self, file: Path, batch_count: int) -> None:
        """Put the jobs of a file into the queue."""
        self._call("submit", "jobs", str(file), "--batch", str(batch_count))

    def drain(self, *words: str) -> None:
        """Let devices take nothing new, or take them into service again."""
        self._call("drain", *words)

    def _call(self, command: str, *words: str) -> None:
        line = [sys.executable, "-m", "nearpeak", "farm", command, *words, "--store", self.place]
        subprocess.run(line, env=self._environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    def until_done(self, job_count: int, limit_s: float) -> None:
        """Wait until so many jobs are done."""
        end_s = time.monotonic() + limit_s
        while self.counted().get("done", 0) < job_count:
            if time.monotonic() > end_s:
                raise TimeoutError(f"{self.counted()} after {limit_s:g} s, wanted {job_count} done")
            time.sleep(0.2)

    def cpu_s(self) -> float:
        """Return the CPU time of all processes of the farm, those that ended included."""
        import psutil

        total = 0.0
        for one in (self.head, *self.workers):
            for each in (psutil.Process(one.pid), *psutil.Process(one.pid).children(recursive=True)):
                used = each.cpu_times()
                total += used.user + used.system + used.children_user + used.children_system
        return total

    def counted(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        with self._opened.engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT state, count(*) FROM job GROUP BY state").fetchall()
        return {str(state): int(count) for state, count in found}

    def close(self) -> None:
        """End what this object started."""
        for one in (*self.workers, self.head):
            one.kill()
        for one in (*self.workers, self.head):
            one.wait()


def chaos(job_count: int, *, worker_count: int, seed: int, kill_every_count: int, restart_count: int,
          limit_s: float, seconds: float = 0.05, place: str = "") -> Ending:  # fmt: skip
    """Run jobs while workers are killed at random and the scheduler is restarted; return what became of them.

    Args:
        kill_every_count: jobs that are done between two kills, on average; counted in jobs, so that a slow machine is
            attacked as often as a quick one.
    """
    draw, begun_s = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, kills, restarts = Path(name), 0, 0
        farm = Farm(folder, worker_count, place)
        try:
            farm.submit(job_count, folder / "log", seconds)
            next_count = draw.randint(1, 2 * kill_every_count - 1)
            while (done := farm.counted().get("done", 0)) < job_count and time.monotonic() - begun_s < limit_s:
                time.sleep(draw.uniform(0.05, 0.15))
                if done > (restarts + 1) * job_count / (restart_count + 1) and restarts < restart_count:
                    farm.restart_head()
                    restarts += 1
                if done >= next_count:
                    time.sleep(draw.uniform(0.0, 0.5))  # anywhere within a job
                    number = draw.randrange(worker_count)
                    farm.workers[number].send_signal(signal.SIGKILL)
                    farm.workers[number].wait()
                    farm.workers[number] = farm.worker(number)
                    kills, next_count = kills + 1, done + draw.randint(1, 2 * kill_every_count - 1)
        finally:
            farm.close()
        return _ending(farm.place, folder / "log", job_count, (kills, restarts), time.monotonic() - begun_s)


def _ending(place: str, log: Path, job_count: int, counts: tuple[int, int], seconds_s: float) -> Ending:
    with open_store(place) as store, store.engine.connect() as connection:
        held = connection.exec_driver_sql(
            "SELECT j.id, count(r.job_id), j.state, (SELECT count(*) FROM job_attempt a WHERE"
            " a.job_batch_id = j.job_batch_id AND a.outcome = 'accepted') FROM job j LEFT JOIN job_result r"
            " ON r.job_id = j.id GROUP BY j.id, j.state, j.job_batch_id"
        ).fetchall()
        attempts = connection.exec_driver_sql("SELECT count(*) FROM job_attempt").scalar_one()
        spans = connection.exec_driver_sql(
            "SELECT device, begun_ns, ended_ns FROM job_attempt WHERE ended_ns IS NOT NULL"
            " ORDER BY device, fencing_token"
        ).fetchall()
    whole = [row for row in held if row[1] == 1 and row[3] == 1 and row[2] == "done"]
    return Ending(
        job_count=job_count, accepted_count=len(whole), lost_count=job_count - sum(row[1] >= 1 for row in held),
        twice_count=sum(max(0, row[1] - 1) + max(0, row[3] - 1) for row in held),
        overlap_count=_overlaps(log) + _held_twice(spans), kill_count=counts[0], restart_count=counts[1],
        again_count=attempts - job_count, seconds_s=seconds_s,
    )  # fmt: skip


def _held_twice(spans: list[tuple[str, int, int]]) -> int:
    """Return how often an attempt on a device began before the one with the token before it had ended.

    One that was lost ends when its lease is found expired, which is when the next one begins.
    """
    return sum(a[0] == b[0] and b[1] < a[2] for a, b in pairwise(spans))


def _overlaps(log: Path) -> int:
    """Return how often a program began on a device before the one before it had ended.

    One that was killed wrote no end; had it lived on, it would have.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    open_at: dict[tuple[str, str], float] = {}
    for line in log.read_text().splitlines():
        number, device, what, at = line.split()
        if what == "in":
            open_at[number, device] = float(at)
        elif (number, device) in open_at:
            spans.setdefault(device, []).append((open_at.pop((number, device)), float(at)))
    pairs = [pair for each in spans.values() for pair in pairwise(sorted(each))]
    return sum(later[0] < earlier[1] for earlier, later in pairs)


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
