"""Batch times and bytes of a vector index, and latencies of queries that queue for it and then for a ranker."""

from collections.abc import Callable
from dataclasses import dataclass

from nearpeak.core.systems.retrieval_answer import RecallPoint, RetrievalSetting
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes, ServedBatches, serve_ensemble
from nearpeak.systems.serving.inference_server.model_config import ModelConfig
from nearpeak.systems.serving.loads.arrival_process import open_load

Duration = Callable[[Case], float]
MOST_BATCH = 64
"""Queries of a batch, at most."""
_SIZES = (1, 2, 4, 8, 16, 32, 64)
_ID_BYTES = 8
"""Bytes of the identifier of a stored vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSet:
    """What is searched."""

    count: int
    """Vectors."""
    width_count: int
    """Elements of each."""
    number_format: str
    """Format of an element."""
    found_count: int
    """Nearest vectors wanted."""


def setting_of(point: RecallPoint, vectors: VectorSet, *, shards: int, window_s: float) -> RetrievalSetting:
    """Return an index setting over all vectors: lists grow with the root of their number, the probed share stays.

    >>> from nearpeak.systems.serving.retrieval.recall_curve import FLAT
    >>> million = VectorSet(count=1_000_000, width_count=128, number_format="fp16", found_count=100)
    >>> setting_of(FLAT, million, shards=2, window_s=0.0).words
    'flat'
    """
    lists = 0 if point.index == "flat" else max(2, round(point.list_ratio * vectors.count**0.5))
    probes = max(1, round(point.probe_ratio * lists)) if lists else 0
    return RetrievalSetting(
        point=point, list_count=lists, probe_count=probes, shard_count=shards, window_s=window_s
    )  # fmt: skip


def shard_bytes(setting: RetrievalSetting, vectors: VectorSet, element_bytes: float) -> float:
    """Return the bytes of an index on one device: vectors, identifiers and centres."""
    stored = -(-vectors.count // setting.shard_count)
    return stored * (vectors.width_count * element_bytes + _ID_BYTES) + (
        setting.list_count * vectors.width_count * element_bytes
    )


def index_times(setting: RetrievalSetting, vectors: VectorSet, duration: Duration) -> BatchTimes:
    """Return the time of a batch by its queries: exact search, or choice of lists and comparison with their vectors.

    Queries of a batch look into different lists: a share f each reads 1 - (1 - f)^b of the vectors. Comparison takes
    the longer of reading these once and of comparing each query with its own.
    """
    stored = -(-vectors.count // setting.shard_count)

    def search(queries: int, count: float, neighbours: int) -> float:
        rows = max(round(count), neighbours)
        return duration(case(
            "vector_search", queries=queries, vectors=rows, dim=vectors.width_count, k=neighbours,
            dtype=vectors.number_format,
        ))  # fmt: skip

    neighbours = min(vectors.found_count, stored)
    seconds, share = [], setting.point.scanned_ratio
    for queries in _SIZES:
        if not setting.list_count:
            seconds.append(search(queries, stored, neighbours))
            continue
        choice_s = search(queries, setting.list_count, setting.probe_count)
        read_s = search(1, stored * (1.0 - (1.0 - share) ** queries), neighbours)
        seconds.append(choice_s + max(read_s, search(queries, stored * share, neighbours)))
    return BatchTimes(batch_count=_SIZES, seconds_s=tuple(seconds))


def tandem_latencies(
    stages: tuple[tuple[BatchTimes, int], ...], *, rate_per_s: float, window_s: float, count: int, seed: int = 0
) -> tuple[ServedBatches, ...]:
    """Return what each stage makes of Poisson queries that pass from one to the next.

    Args:
        stages: batch times and instances of index and ranker.
        window_s: time that a query waits for others before the index, at most; the ranker takes what is there.
        count: queries.

    >>> times = BatchTimes(batch_count=(1,), seconds_s=(1e-3,))
    >>> first, second = tandem_latencies(((times, 1), (times, 1)), rate_per_s=10.0, window_s=0.0, count=500)
    >>> bool(((second.end_s - first.arrival_s) >= 2e-3 - 1e-12).all())
    True
    """
    if rate_per_s <= 0:
        raise SpecError(f"retrieval: {rate_per_s:g} queries/s; ask for more than 0")
    arrivals = open_load(rate_per_s, count, input_count=1, output_count=1, seed=seed).arrival_s
    steps = [
        (
            ModelConfig(
                name="index" if place == 0 else "ranker", most_batch_count=times.batch_count[-1],
                has_dynamic_batching=times.batch_count[-1] > 1, queue_delay_s=window_s if place == 0 else 0.0,
                instance_count=instances,
            ),
            times,
        )
        for place, (times, instances) in enumerate(stages)
    ]  # fmt: skip
    return serve_ensemble(arrivals, steps, seed=seed)


def least_instances(times: BatchTimes, rate_per_s: float) -> int:
    """Return the instances without which a stage cannot keep up, whatever its batches.

    >>> least_instances(BatchTimes(batch_count=(1, 4), seconds_s=(1.0, 2.0)), 5.0)
    3
    """
    return int(rate_per_s / capacity(times)) + 1


def capacity(times: BatchTimes) -> float:
    """Return the queries per second of one instance in its best batches.

    >>> capacity(BatchTimes(batch_count=(1, 4), seconds_s=(1.0, 2.0)))
    2.0
    """
    return max(size / time_s for size, time_s in zip(times.batch_count, times.seconds_s, strict=True))
