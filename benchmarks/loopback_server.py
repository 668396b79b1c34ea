"""A real server on loopback under 12 open loads: measured and simulated p50 and p99, and a stall in the tail.

Batch times by size, and how they vary from batch to batch, come from the server's own log of the same run, arrivals
from its socket. What is compared is the queue: who waits for whom, in which batch, for how long.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks._figures import Figure
from benchmarks._loopback import Measured, offered
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes, ServedBatches, serve_batches
from nearpeak.systems.serving.inference_server.model_config import ModelConfig

FIGURES = ("loopback_p50_error", "loopback_p99_error", "loopback_worst_p99_error", "loopback_stall_seconds")
SHARES = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8)
"""Loads, of the rate of full batches."""
SETTINGS = ((8, 0.0), (16, 4e-3))
"""Most requests of a batch, and queue delay in seconds."""
REQUESTS, SEED = 1500, 5
STALL_S, STALL_AT = 0.5, 700
BAR = 0.15


def measure() -> Iterator[Figure]:
    """Yield the median error of both percentiles over the loads, the worst, and the tail behind a stall."""
    errors = []
    for most, delay_s in SETTINGS:
        rate = capacity(most, delay_s)
        for share in SHARES:
            measured = offered(arrivals(share * rate, REQUESTS), most, delay_s)
            simulated = simulate(measured, most, delay_s)
            pairs = [(np.quantile(measured.latency_s, q), np.quantile(simulated, q)) for q in (0.5, 0.99)]
            errors.append([abs(there / here - 1) for here, there in pairs])
            words = ", ".join(f"{1e3 * here:.2f} / {1e3 * there:.2f} ms" for here, there in pairs)
            print(f"  batches to {most}, delay {1e3 * delay_s:g} ms, {share * rate:.0f}/s: p50, p99 measured / "
                  f"simulated {words}; client late by at most {1e3 * measured.late_s:.1f} ms", flush=True)  # fmt: skip
    p50, p99 = np.median(errors, axis=0).tolist()
    yield Figure(name="loopback_p50_error", value=p50, unit="", bar=f"<= {BAR}", passed=p50 <= BAR, seed=SEED)
    yield Figure(name="loopback_p99_error", value=p99, unit="", bar=f"<= {BAR}", passed=p99 <= BAR, seed=SEED)
    worst = float(np.max(errors, axis=0)[1])
    yield Figure(name="loopback_worst_p99_error", value=worst, unit="", bar="", passed=True, seed=SEED)
    tail = stalled()
    yield Figure(name="loopback_stall_seconds", value=tail, unit="s", bar=f">= {0.8 * STALL_S}",
                 passed=tail >= 0.8 * STALL_S, seed=SEED)  # fmt: skip


def arrivals(rate_per_s: float, count: int) -> np.ndarray:
    """Return Poisson arrivals."""
    return np.cumsum(np.random.default_rng(SEED).exponential(1 / rate_per_s, count))


def capacity(most: int, delay_s: float) -> float:
    """Return the rate of full batches, by requests that all come at once."""
    measured = offered(np.zeros(40 * most), most, delay_s)
    full = measured.batch_count == most
    return float(most / np.median(measured.batch_s[full]))


def simulate(measured: Measured, most: int, delay_s: float) -> np.ndarray:
    """Return the latencies of the same arrivals in the simulated batcher, from the client to the client.

    Arrivals are those at the server, and replies take from the end of a batch to the client what they took.
    """
    firsts = np.flatnonzero(np.diff(measured.batch_s, prepend=-1.0))  # replies of one batch name one time
    counts, spent = measured.batch_count[firsts], measured.batch_s[firsts]
    sizes = np.unique(counts)
    seconds = np.maximum.accumulate([float(np.quantile(spent[counts == size], 0.1)) for size in sizes])
    extra = np.maximum(spent - np.interp(counts, sizes, seconds), 0.0)
    times = BatchTimes(batch_count=tuple(sizes.tolist()), seconds_s=tuple(seconds.tolist()),
                       extra_s=tuple(extra.tolist()))  # fmt: skip
    config = ModelConfig(name="net", most_batch_count=most, has_dynamic_batching=True, queue_delay_s=delay_s)
    order = np.argsort(measured.received_s, kind="stable")
    served: ServedBatches = serve_batches(measured.received_s[order], config, times, seed=SEED)
    ends = np.empty(len(order))
    ends[order] = served.end_s
    return ends + measured.reply_s - measured.arrival_s


def stalled() -> float:
    """Return the 99th percentile of an easy load during which the server stops for a while."""
    most, delay_s = SETTINGS[0]
    rate = 0.3 * capacity(most, delay_s)
    found = offered(arrivals(rate, REQUESTS), most, delay_s, stall_at=STALL_AT, stall_s=STALL_S)
    smooth = float(np.quantile(simulate(found, most, delay_s), 0.99))
    print(
        f"  a stall of {STALL_S} s: p99 {np.quantile(found.latency_s, 0.99):.3f} s; without it {smooth:.3f} s",
        flush=True,
    )
    return float(np.quantile(found.latency_s, 0.99))
