"""The store with 10^7 samples: how fast they go in, what they take, how fast histories and latest changes come out."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks._figures import Figure
from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.store import Store, open_store

FIGURES = ("store_ingest", "store_bytes_per_sample", "store_history", "store_latest")
SERIES, RUNS, SAMPLES, SEED = 2000, 100, 50, 0
TESTBED = Testbed(name="torch_cuda", policy={"cache": "cold", "timer": "cuda_events", "mode": "device"})


def measure() -> Iterator[Figure]:
    """Yield ingest rate and size, and the times of the two questions that a dashboard asks most."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with open_store(path, create=True) as store:
            spent_s = sum(ingest_s(store, number) for number in range(RUNS))
        count = SERIES * RUNS * SAMPLES
        rate, each_bytes = count / spent_s, path.stat().st_size / count
        yield Figure(name="store_ingest", value=rate, unit="samples/s", bar=">= 400,000", passed=rate >= 4e5, seed=SEED)
        yield Figure(
            name="store_bytes_per_sample", value=each_bytes, unit="B", bar="<= 7 B", passed=each_bytes <= 7, seed=SEED
        )
        with open_store(path) as store:
            history_s = median_s(lambda number: len(store.history(1 + 37 * number % SERIES)) == RUNS, 50)
            latest_s = median_s(lambda _: len(store.latest_against_previous()) == SERIES, 20)
        yield Figure(
            name="store_history", value=1e3 * history_s, unit="ms", bar="<= 5 ms", passed=history_s <= 0.005, seed=SEED
        )
        yield Figure(
            name="store_latest", value=1e3 * latest_s, unit="ms", bar="<= 50 ms", passed=latest_s <= 0.05, seed=SEED
        )


def ingest_s(store: Store, number: int) -> float:
    """Return the time that one run of every series takes until it is committed."""
    record = run_record(number, SERIES, SAMPLES)
    start_s = time.perf_counter()
    store.ingest(record)
    return time.perf_counter() - start_s


def run_record(number: int, series: int, samples: int) -> RunRecord:
    """Return a synthetic run at commit `number`: times with a tail to the right, of each series its own level."""
    draw = np.random.default_rng([SEED, number])
    level_s = 1e-6 * np.exp(np.random.default_rng(SEED).normal(4, 1.5, series))
    times_s = level_s[:, None] * np.exp(0.002 * draw.standard_normal((series, samples)) ** 2)
    sets = tuple(
        SampleSet(
            case=f"{place:064x}", label=f"gemm m={place}", metric=TIME, testbed=TESTBED, values=times_s[place],
            workload="gemm", parameters={"op": "gemm", "m": place}, outcome="converged",
        ) for place in range(series)
    )  # fmt: skip
    return RunRecord(
        device=Device(name="NVIDIA H200", uuid="GPU-0"), samples=sets, source=Source(digest=f"synthetic {number}"),
        revision=Revision(sha=f"{number:040x}", repository="synthetic", position=number),
        stack=(("cuda", "12.8"), ("torch", f"2.{number // 20}")), started_ns=number * 10**9,
    )  # fmt: skip


def median_s(ask: object, count: int) -> float:
    """Return the median time of `ask(number)`, which must answer with true."""
    spent_s = []
    for number in range(count):
        start_s = time.perf_counter()
        right = ask(number)  # type: ignore[operator]
        spent_s.append(time.perf_counter() - start_s)
        assert right, "the store gave a wrong answer"
    return statistics.median(spent_s)
