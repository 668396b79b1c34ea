"""Search for the retrieval service of fewest devices that meets recall, rate and latency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nearpeak.core.systems.retrieval_answer import RecallPoint, RetrievalOption, RetrievalSetting
from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.batch_queue import BatchTimes
from nearpeak.systems.serving.retrieval.tandem_queue import (
    Duration,
    VectorSet,
    capacity,
    index_times,
    least_instances,
    setting_of,
    shard_bytes,
    tandem_latencies,
)
from nearpeak.units import show

SHARDS, WINDOWS_S = (1, 2, 4, 8), (0.0, 0.5e-3, 2e-3)
"""Shards and batch windows that are tried."""
FREE_RATIO = 0.9
"""Share of a device's memory that an index may take."""
QUERIES, WARM_RATIO, SPARE = 3_000, 0.1, 3
"""Queries of a simulation, their first share that does not count, and instances beyond the least that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Limits of a service."""

    rate_per_s: float
    """Queries per second."""
    limit_s: float
    """Limit of the 99th percentile."""
    capacity_bytes: float
    """Memory of a device."""
    element_bytes: float
    """Bytes of an element of a vector."""


class _Candidate(NamedTuple):
    """A service before it is simulated."""

    setting: RetrievalSetting
    times: BatchTimes
    replicas: int
    rankers: int

    @property
    def device_count(self) -> int:
        return self.replicas * self.setting.shard_count + self.rankers


def cheapest_services(
    points: Sequence[RecallPoint], vectors: VectorSet, wanted: Wanted, duration: Duration, rank: BatchTimes | None
) -> list[RetrievalOption]:  # fmt: skip
    """Return the service of fewest devices within the limits, then the best of each other index and shard count.

    Services are simulated in order of their devices; among equally many the lowest 99th percentile counts. No service
    with fewer devices than a stage needs to keep up is simulated, so that the answer is that of simulating all.

    Args:
        rank: time of ranking by queries; none without a ranker.

    Raises:
        SpecError: no index fits into the devices, or no service meets the limit; the message says which comes nearest.
    """
    groups = list(_groups(points, vectors, wanted, duration, rank))
    if not groups:
        raise SpecError(f"retrieval: {vectors.count:,} vectors do not fit into {SHARDS[-1]} devices; store fewer bytes")
    options, nearest = [], list[RetrievalOption]()
    for candidates in groups:
        best = None
        for candidate in candidates:
            if best is not None and candidate.device_count > best.device_count:
                break
            option = _simulated(candidate, wanted, rank)
            nearest.append(option)
            if option.latency_s["p99"] <= wanted.limit_s and (best is None or _order(option) < _order(best)):
                best = option
        options += [] if best is None else [best]
    if not options:
        closest = min(nearest, key=lambda option: option.latency_s["p99"])
        stage = max(closest.stage_s, key=lambda name: closest.stage_s[name])
        raise SpecError(
            f"retrieval: no service meets p99 <= {show(wanted.limit_s, 's')}; nearest is "
            f"{show(closest.latency_s['p99'], 's')} with {closest.device_count} devices "
            f"({closest.setting.words}), limited by the {stage}"
        )
    return sorted(options, key=_order)


def _order(option: RetrievalOption) -> tuple[int, float]:
    return option.device_count, option.latency_s["p99"]


def _groups(
    points: Sequence[RecallPoint], vectors: VectorSet, wanted: Wanted, duration: Duration, rank: BatchTimes | None
) -> Iterator[list[_Candidate]]:  # fmt: skip
    """Yield the candidates of each index and shard count that fit, fewest devices first."""
    rankers = (0,) if rank is None else _tried(rank, wanted.rate_per_s)
    for point in points:
        for shards in SHARDS:
            setting = setting_of(point, vectors, shards=shards, window_s=0.0)
            if shard_bytes(setting, vectors, wanted.element_bytes) > FREE_RATIO * wanted.capacity_bytes:
                continue
            times = index_times(setting, vectors, duration)
            candidates = [
                _Candidate(
                    setting=setting_of(point, vectors, shards=shards, window_s=window_s), times=times,
                    replicas=replicas, rankers=count,
                )
                for window_s in WINDOWS_S for replicas in _tried(times, wanted.rate_per_s) for count in rankers
            ]  # fmt: skip
            yield sorted(candidates, key=lambda candidate: candidate.device_count)


def _tried(times: BatchTimes, rate_per_s: float) -> tuple[int, ...]:
    least = least_instances(times, rate_per_s)
    return tuple(range(least, least + SPARE + 1))


def _simulated(candidate: _Candidate, wanted: Wanted, rank: BatchTimes | None) -> RetrievalOption:
    """Return a service with its latencies."""
    stages = [(candidate.times, candidate.replicas)]
    if rank is not None:
        stages.append((rank, candidate.rankers))
    served = tandem_latencies(
        tuple(stages), rate_per_s=wanted.rate_per_s, window_s=candidate.setting.window_s, count=QUERIES
    )  # fmt: skip
    warm = int(WARM_RATIO * QUERIES)
    latency = (served[-1].end_s - served[0].arrival_s)[warm:]
    p50, p99 = np.quantile(latency, (0.5, 0.99)).tolist()
    names = ("index", "ranker")[: len(served)]
    return RetrievalOption(
        setting=candidate.setting, replica_count=candidate.replicas, ranker_count=candidate.rankers,
        device_count=candidate.device_count, latency_s={"mean": float(latency.mean()), "p50": p50, "p99": p99},
        stage_s={
            name: float(np.quantile(stage.latency_s[warm:], 0.99)) for name, stage in zip(names, served, strict=True)
        },
        load_ratio={
            name: wanted.rate_per_s / (count * capacity(times))
            for name, (times, count) in zip(names, stages, strict=True)
        },
        batch_count=1.0 / float((1.0 / served[0].batch_count[warm:]).mean()),
    )  # fmt: skip
