"""Plans of retrieval with a ranker: recall measured on this CPU, predicted batches on a device, cheapest service."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.systems.retrieval_answer import PlannedRetrieval, RecallPoint
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes
    from nearpeak.systems.serving.retrieval.recall_curve import Vectors

MOST_SAMPLE = 50_000
"""Vectors of a user's file that recall is measured on at most; the first ones are queries."""
_QUERIES, MEASURED = 200, 10
"""Queries of a file, and nearest vectors that recall is measured for, as more are a large part of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A ranking model: captured forward steps of several batches."""

    steps: tuple[Workload, ...]
    """Steps of batches, smallest first."""
    item_count: tuple[int, ...]
    """Items of each batch."""
    candidate_count: int
    """Items that are ranked for a query."""


def plan_retrieval(
    target: Target, *, vector_count: int, width_count: int, number_format: str = "fp16", found_count: int = 100,
    recall_ratio: float = 0.95, rate_per_s: float, limit_s: float, ranker: Ranker | None = None,
    data: Path | None = None, usd_per_device_hour: float | None = None, curve: Sequence[RecallPoint] = (),
) -> PlannedRetrieval:  # fmt: skip
    """Return the cheapest retrieval service for a recall, a rate and a latency.

    Args:
        data: file of vectors (.npy) of the user's own, for the recall curve; synthetic clusters without it.
        curve: recall that was measured before, instead of measuring it.

    Raises:
        SpecError: nothing fits, or no service meets the limits.
    """
    from nearpeak.api.achievable_time import predict
    from nearpeak.core.work.dtype import dtype_of
    from nearpeak.ops import case
    from nearpeak.prediction.host_costs import eager_cost
    from nearpeak.systems.serving.retrieval.recall_curve import least_points, recall_curve
    from nearpeak.systems.serving.retrieval.service_search import Wanted, cheapest_services
    from nearpeak.systems.serving.retrieval.tandem_queue import VectorSet, index_times

    if not 1 <= found_count <= vector_count:
        raise SpecError(f"plan retrieval: {found_count:,} nearest of {vector_count:,} vectors; ask for at most all")
    if target.dram.capacity_bytes is None:
        raise SpecError(f"plan retrieval: {target.name} states no memory, so whether an index fits is unknown")
    vectors = VectorSet(
        count=vector_count, width_count=width_count, number_format=number_format, found_count=found_count
    )  # fmt: skip
    sample, queries, source = _sample(data, width_count)
    points = tuple(curve) or recall_curve(sample, queries, min(found_count, MEASURED))

    host = eager_cost(call_count=1, kernel_count=1, view_count=0, target=target)

    def duration(kernel: Case) -> float:  # a batch begins when the host has it, so that nothing hides the submission
        return host.usual_s + predict(kernel, target).time_s

    wanted = Wanted(
        rate_per_s=rate_per_s, limit_s=limit_s, capacity_bytes=target.dram.capacity_bytes,
        element_bytes=dtype_of(number_format).bits_count / 8,
    )  # fmt: skip
    rank = None if ranker is None else _rank_times(ranker, target)
    options = cheapest_services(least_points(points, recall_ratio), vectors, wanted, duration, rank)
    times = index_times(options[0].setting, vectors, duration)
    search = case(
        "vector_search", queries=8, vectors=vector_count, dim=width_count, k=found_count, dtype=number_format
    )  # fmt: skip
    whole = predict(search, target)
    return PlannedRetrieval(
        target=target.name, vector_count=vector_count, width_count=width_count, number_format=number_format,
        found_count=found_count, recall_ratio=recall_ratio, rate_per_s=rate_per_s, limit_s=limit_s,
        ranker="" if ranker is None else ranker.steps[0].name,
        candidate_count=0 if ranker is None else ranker.candidate_count, best=options[0], others=tuple(options[1:]),
        curve=points, curve_source=source, batch_s=dict(zip(times.batch_count, times.seconds_s, strict=True)),
        rank_s={} if rank is None else dict(zip(rank.batch_count, rank.seconds_s, strict=True)),
        low_ratio=(host.low_s + whole.low_s) / (host.usual_s + whole.time_s),
        high_ratio=(host.high_s + whole.high_s) / (host.usual_s + whole.time_s),
        usd_per_device_hour=usd_per_device_hour,
    )  # fmt: skip


def ranker_of(model: str, candidates: int, batch: int = 0) -> Ranker:
    """Return a ranker: a saved forward step of `batch` items, or a model that is captured for one and eight queries.

    Raises:
        SpecError: the batch of a saved step is not known.
    """
    from nearpeak.api.questions import capture

    if candidates < 1:
        raise SpecError(f"--candidates {candidates}: a query ranks at least 1 item")
    if not model.endswith(".json"):
        sizes = (candidates, 8 * candidates)
        steps = tuple(capture(model, batch=size) for size in sizes)
        return Ranker(steps=steps, item_count=sizes, candidate_count=candidates)
    step = capture(model)
    stated = batch or int(step.origin.get("batch", "0") or 0)
    if stated < 1:
        raise SpecError(f"--ranker {model}: does not say how many items its step ranks; give --ranker-batch")
    return Ranker(steps=(step,), item_count=(stated,), candidate_count=candidates)


def _rank_times(ranker: Ranker, target: Target) -> "BatchTimes":
    """Return the time of ranking by queries: of the device, or of the host that submits a step, whichever is longer.

    The device's time is linear between captured batches, and follows the items beyond the last; the host's is the same.
    """
    import numpy as np

    from nearpeak.api.submitted_step import submitted_step
    from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes
    from nearpeak.systems.serving.retrieval.tandem_queue import MOST_BATCH

    items = [float(count) for count in ranker.item_count]
    steps = [submitted_step(step, target) for step in ranker.steps]
    host_s = max(step.host_s if isinstance(step, ExecutionTime) else 0.0 for step in steps)
    times_s = [step.device_s if isinstance(step, ExecutionTime) else step.time_s for step in steps]
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= MOST_BATCH]
    item_counts = np.array(sizes, np.float64) * ranker.candidate_count
    device_s = np.interp(item_counts, items, times_s) * np.maximum(item_counts / items[-1], 1.0)
    seconds = np.maximum(device_s, host_s)
    return BatchTimes(batch_count=tuple(sizes), seconds_s=tuple(seconds.tolist()))


def _sample(data: Path | None, width: int) -> "tuple[Vectors, Vectors, str]":
    """Return vectors and queries to measure recall on, and their origin in words."""
    from nearpeak.systems.serving.retrieval.recall_curve import read_vectors, synthetic_vectors

    if data is None:
        vectors, queries = synthetic_vectors(width)
        return vectors, queries, f"{len(vectors):,} synthetic vectors in Gaussian clusters"
    rows = read_vectors(data, width, MOST_SAMPLE + _QUERIES)
    return rows[_QUERIES:], rows[:_QUERIES], f"{len(rows) - _QUERIES:,} vectors of {data.name}"
