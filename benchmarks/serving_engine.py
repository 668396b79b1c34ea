"""The serving engine: steps simulated per second, an hour of a public trace, and queues with known answers."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks._figures import ROOT, Figure
from benchmarks._queue_formulas import decode_batch, mean_wait
from nearpeak.base.compilation import compile_at_first_call
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.systems.serving.latency_metrics import request_metric
from nearpeak.systems.serving.loads.arrival_process import open_load
from nearpeak.systems.serving.loads.request_file import read_requests
from nearpeak.systems.serving.request_columns import Requests, prefix_hit_ratio
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.systems.serving.serving_run import serve
from nearpeak.systems.serving.step_grid import linear_grid

FIGURES = (
    "serving_steps_rate", "serving_single_steps_rate", "serving_azure_hour_seconds", "serving_skips_equal",
    "serving_md1_error_50", "serving_md1_error_80", "serving_md1_error_90", "serving_little_error",
    "serving_batch_error", "serving_prefix_conversation", "serving_prefix_synthetic", "serving_blocks_left",
)  # fmt: skip
TRACES = ROOT.parent / "shared" / "scale" / "traces"
LOADS, REQUESTS, SEED, ROUNDS = (0.5, 0.8, 0.9), 2_000_000, 7, 3
GRID = linear_grid(fixed_s=6e-3, token_s=2e-5, sequence_s=1e-5, kv_s=2e-8, pair_s=1e-9)
"""Step times of the size of an 8B model on one large GPU; the speed of the loop hardly depends on them."""
ENGINE = Engine(policy="vllm", kv_block_count=20_000)


def measure() -> Iterator[Figure]:
    """Yield each figure as soon as it is known; without the public traces, those of a random load of the same size."""
    compile_at_first_call()
    hour = _hour()
    serve(hour, ENGINE, GRID)
    (fast, fast_s), (slow, slow_s) = (min((_timed(hour, skips) for _ in range(ROUNDS)), key=lambda pair: pair[1])
                                      for skips in (True, False))  # fmt: skip
    yield _figure("serving_steps_rate", fast.step_count.sum() / fast_s, "steps/s", least=1e6)
    yield _figure("serving_single_steps_rate", slow.step_count.sum() / slow_s, "steps/s", least=1e6)
    yield _figure("serving_azure_hour_seconds", fast_s, "s", most=0.5)
    yield _figure("serving_skips_equal", _equal_columns(fast, slow), "of 4 columns", least=4)
    yield from _queues(hour)
    yield from _prefixes()


def _timed(requests: Requests, skips: bool) -> tuple[Outcome, float]:
    begun_s = time.process_time()
    outcome = serve(requests, ENGINE, GRID, skips=skips)
    return outcome, time.process_time() - begun_s


def _hour() -> Requests:
    path = TRACES / "azure2023_conv.parquet"
    if path.is_file():
        return read_requests(path)
    return open_load(19_366 / 3_502, 19_366, input_count=1155, output_count=211, seed=SEED)


def _equal_columns(fast: Outcome, slow: Outcome) -> int:
    names = ("scheduled_s", "first_s", "last_s", "step_count")
    return sum(np.array_equal(getattr(fast, name), getattr(slow, name)) for name in names)


def _queues(hour: Requests) -> Iterator[Figure]:
    single = Engine(policy="vllm", kv_block_count=10, sequence_count=1)
    for load in LOADS:
        requests = open_load(load, REQUESTS, input_count=1, output_count=1, seed=SEED)
        wait = request_metric(serve(requests, single, linear_grid(fixed_s=1.0)), "queue").mean()
        error = abs(wait / mean_wait(load, 1.0) - 1)
        yield _figure(f"serving_md1_error_{load * 100:.0f}", error, "", most=0.02, seed=SEED)
    outcome = serve(hour, ENGINE, GRID, is_logged=True)
    steps = outcome.steps
    assert steps is not None
    number = ((steps.running_count + steps.waiting_count) * steps.duration_s).sum() / outcome.end_s
    product = len(hour) / outcome.end_s * request_metric(outcome, "latency").mean()
    yield _figure("serving_little_error", abs(number / product - 1), "", most=0.01)
    requests = open_load(8.0, 50_000, input_count=10, output_count=150, seed=SEED)
    outcome = serve(requests, ENGINE, linear_grid(fixed_s=6e-3, sequence_s=3e-5), is_logged=True)
    steps = outcome.steps
    assert steps is not None
    batch = (steps.decode_count * steps.duration_s).sum() / outcome.end_s
    expected = decode_batch(8.0, 150, lambda size: 6e-3 + 3e-5 * size, limit=256)
    yield _figure("serving_batch_error", abs(batch / expected - 1), "", most=0.02, seed=SEED)


def _prefixes() -> Iterator[Figure]:
    """Hit ratios of caches without limit as published, and that a small cache gives every block back."""
    for name, published in (("conversation", 0.366), ("synthetic", 0.640)):
        path = Path(TRACES / f"mooncake_{name}.parquet")
        if not path.is_file():
            continue
        requests = read_requests(path)
        ratio = prefix_hit_ratio(requests)
        yield Figure(
            name=f"serving_prefix_{name}", value=ratio, unit="", bar=f"= {published}",
            passed=abs(ratio - published) < 5e-4,
        )  # fmt: skip
        if name == "synthetic":
            engine = Engine(policy="vllm", kv_block_count=100_000, step_token_count=8192)
            outcome = serve(requests, engine, GRID)
            left = int(engine.kv_block_count - outcome.unused_block_count[0])
            yield _figure("serving_blocks_left", left, "blocks held at the end", most=0)


def _figure(
    name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None,
    seed: int | None = None,
) -> Figure:  # fmt: skip
    if least is not None:
        return Figure(name=name, value=float(value), unit=unit, bar=f">= {least:,g}", passed=value >= least, seed=seed)
    assert most is not None
    return Figure(name=name, value=float(value), unit=unit, bar=f"<= {most:g}", passed=value <= most, seed=seed)
