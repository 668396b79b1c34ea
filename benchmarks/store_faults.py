"""The store under attack: kill -9 while runs are written, two processes that write at once."""

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import ROOT, Figure
from nearpeak.errors import NearpeakError
from nearpeak.store import open_store
from nearpeak.store.maintenance import check

FIGURES = ("store_kills_with_a_loss", "store_two_writers_lost", "store_two_writers_longest_wait")
KILLS, WRITES = 200, 1000
_WRITER = """
import sys, time
sys.path[:0] = [{root!r}]
from benchmarks.store import run_record
from nearpeak.store import open_store
with open_store({path!r}, create=True) as store:
    for number in range({first}, {last}, {step}):
        start_s = time.perf_counter()
        done = store.ingest(run_record(number, {series}, 20))
        sys.stdout.write(f"{{done.uid}} {{time.perf_counter() - start_s}}\\n")
        sys.stdout.flush()
"""


def measure() -> Iterator[Figure]:
    """Yield what kills lost, what two writers lost, and how long a writer waited at most."""
    lost = kills(KILLS, seed=0)
    yield Figure(
        name="store_kills_with_a_loss", value=lost, unit=f"of {KILLS} kills", bar="0", passed=lost == 0, seed=0
    )
    missing, longest_s = two_writers(WRITES)
    yield Figure(
        name="store_two_writers_lost", value=missing, unit=f"of {2 * WRITES} runs", bar="0", passed=missing == 0
    )
    yield Figure(name="store_two_writers_longest_wait", value=longest_s, unit="s", bar="<= 5 s", passed=longest_s <= 5)


def kills(count: int, seed: int) -> int:
    """Return how many of `count` kills lost a run that was acknowledged, left a part of one, or damaged the file.

    The writer goes on in the same store after each kill, giving again what it gave before, which must change nothing.
    """
    draw, lost = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        for _ in range(count):
            lost += _loses(path, draw.uniform(0.0, 1.0))
            if path.exists() and path.stat().st_size > 64 << 20:
                path.unlink()
    return lost


def _loses(path: Path, after_s: float) -> bool:
    """Say whether a kill some time after the first acknowledged run lost anything."""
    process = _writer(path, first=0, last=100_000, step=1, series=40)
    assert process.stdout is not None
    told = [process.stdout.readline()]
    killer = threading.Timer(after_s, process.send_signal, [signal.SIGKILL])
    killer.start()
    told += process.stdout.readlines()
    process.wait()
    killer.join()
    uids = {line.split()[0].decode() for line in told if line.endswith(b"\n")}
    try:
        with open_store(path) as store:
            kept = {run.uid: run.id for run in store.runs()}
            faults = list(check(store.engine, store.name))
    except NearpeakError:
        return True
    with sqlite3.connect(path) as connection:
        counted = connection.execute("SELECT count(*) FROM measurement GROUP BY run_id").fetchall()
    return bool(uids - kept.keys() or faults) or {count for (count,) in counted} - {40} != set()


def two_writers(count: int) -> tuple[int, float]:
    """Return how many of twice `count` runs are missing after two processes wrote at once, and the longest write.

    A reader looks at the store all the while.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_store(path, create=True).close()
        writers = [_writer(path, first=first, last=2 * count, step=2, series=2) for first in (0, 1)]
        stop = threading.Event()
        reader = threading.Thread(target=_read, args=(path, stop))
        reader.start()
        lines = [line.split() for writer in writers for line in writer.communicate()[0].splitlines()]
        stop.set()
        reader.join()
        with open_store(path) as store:
            kept = {run.uid for run in store.runs()}
            series = store.series()
    right = len({uid.decode() for uid, _ in lines} & kept) if len(series) == 2 else 0
    return 2 * count - right, max(float(wait) for _, wait in lines)


def _read(path: Path, stop: threading.Event) -> None:
    with open_store(path) as store:
        while not stop.is_set():
            for series in store.series():
                store.history(series.id)
            time.sleep(0.01)


def _writer(path: Path, *, first: int, last: int, step: int, series: int) -> "subprocess.Popen[bytes]":
    code = _WRITER.format(root=str(ROOT), path=str(path), first=first, last=last, step=step, series=series)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
