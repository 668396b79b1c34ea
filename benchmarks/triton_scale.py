"""Triton servers under rising concurrency: throughput and p99 against the published rows of 32 deployments."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks._figures import ROOT, Figure
from nearpeak.frontends.files.case_tables import read_columns
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes, serve_batches
from nearpeak.systems.serving.inference_server.model_config import ModelConfig

FIGURES = ("triton_throughput_error", "triton_p99_error", "triton_request_seconds")
ROWS = ROOT.parent / "shared" / "scale" / "triton_inference.parquet"
REQUEST_S = (0.0, 25e-6, 50e-6, 75e-6, 100e-6)
"""Host times per request of a batch, of which the best on half of the deployments is taken."""
INSTANCES, DELAY_S, SHARING, CV = 2, 1e-3, 1.0, 0.05
"""The published tables state neither instances nor delay: two that take turns on the device, a millisecond, and host
noise of a few percent are assumed for all."""


class Row(NamedTuple):
    """One line of a table: times in seconds."""

    batch: int
    concurrency: int
    rate: float
    """Items per second."""
    compute_s: float
    network_s: float
    p99_s: float


def measure() -> Iterator[Figure]:
    """Yield medians over all deployments, each half with the host time per request that suits the other half best."""
    if not ROWS.is_file():
        return
    halves, held, chosen = [deployments()[start::2] for start in (0, 1)], [], []
    for fitted, others in (halves, halves[::-1]):
        chosen.append(min(REQUEST_S, key=lambda value, rows=fitted: np.median(errors(rows, value)[:, 0])))  # type: ignore[misc]
        held.append(errors(others, chosen[-1]))
        print(f"  {len(others)} deployments, {1e6 * chosen[-1]:.0f} us per request by the others: median errors of "
              f"throughput and p99 {np.round(np.median(held[-1], axis=0), 3).tolist()}", flush=True)  # fmt: skip
    rate, p99 = np.median(np.concatenate(held), axis=0)
    yield Figure(name="triton_request_seconds", value=float(np.mean(chosen)), unit="s", bar="", passed=True)
    yield Figure(name="triton_throughput_error", value=float(rate), unit="", bar="<= 0.15", passed=bool(rate <= 0.15))
    yield Figure(name="triton_p99_error", value=float(p99), unit="", bar="<= 0.2", passed=bool(p99 <= 0.2))


def deployments() -> list[tuple[list[Row], list[Row]]]:
    """Return the rows of each deployment: by batch at one request in flight, and by requests in flight."""
    tables: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    columns = read_columns(ROWS)
    for model, gpu, p99_ms, extra in zip(
        columns["model"], columns["gpu"], columns["e2e_p99_ms"], columns["extra"], strict=True
    ):
        record = json.loads(extra)
        cells = json.loads(record["variant"])
        if "Server Queue (ms)" in cells and record["metric_name"].startswith("p50"):
            row = Row(
                int(float(cells["Batch"])), int(float(cells["Concurrency"])), float(cells["Inferences/Second"]),
                _sum(cells, "Server Compute"), _sum(cells, "Client") + _sum(cells, "Network"), p99_ms * 1e-3,
            )  # fmt: skip
            tables[model, gpu, record["section"].split(" > ")[-1]].append(row)
    return [
        (tables[model, gpu, title.replace("Online", "Offline")], rows)
        for (model, gpu, title), rows in sorted(tables.items())
        if title.startswith("Online") and (model, gpu, title.replace("Online", "Offline")) in tables
    ]


def _sum(cells: dict[str, str], start: str) -> float:
    return sum(float(value) for name, value in cells.items() if name.startswith(start)) * 1e-3


def errors(pairs: Sequence[tuple[list[Row], list[Row]]], request_s: float) -> np.ndarray:
    """Return the relative errors of throughput and p99 of every fourth row of each deployment.

    Batch times are those at one request in flight; the time on the network is the row's own.
    """
    ratios = []
    for offline, online in pairs:
        seconds = {row.batch: row.compute_s for row in offline}
        sizes = tuple(sorted(seconds))
        times = BatchTimes(
            batch_count=sizes, seconds_s=tuple(seconds[size] for size in sizes), sharing_ratio=SHARING, cv_ratio=CV,
            request_s=request_s,
        )  # fmt: skip
        config = ModelConfig(name="model", most_batch_count=sizes[-1], has_dynamic_batching=True,
                             queue_delay_s=DELAY_S, instance_count=INSTANCES)  # fmt: skip
        for row in online[::4]:
            count = max(600, 12 * row.concurrency)
            served = serve_batches(np.zeros(count), config, times, items=row.batch, concurrency=row.concurrency,
                                   think_s=row.network_s)  # fmt: skip
            latency = served.latency_s[count // 3 :] + row.network_s
            rate = row.concurrency * row.batch / latency.mean()
            ratios.append((abs(rate / row.rate - 1), abs(np.quantile(latency, 0.99) / row.p99_s - 1)))
    return np.array(ratios)
