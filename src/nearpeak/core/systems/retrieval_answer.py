"""A retrieval service with a ranker behind it: index, recall, shards, replicas, latencies and cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.records.record_codec import Codec

_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallPoint:
    """An index at one setting, measured on a sample."""

    index: str
    """`flat`, every vector is compared, or `ivf`, an inverted file."""
    list_ratio: float
    """Lists over the square root of the vectors; 0 for flat."""
    probe_ratio: float
    """Lists that a query looks into over all lists; 1 for flat."""
    recall_ratio: float
    """Share of the true nearest vectors that are found."""
    scanned_ratio: float
    """Share of the vectors that a query is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSetting:
    """An index over all vectors, and how it is spread and batched."""

    point: RecallPoint
    """Index at its setting."""
    list_count: int
    """Lists over all vectors; 0 for flat."""
    probe_count: int
    """Lists that a query looks into; 0 for flat."""
    shard_count: int
    """Devices that hold a part of the vectors each; every query goes to all."""
    window_s: float
    """Time that a query waits for others at most."""

    @property
    def words(self) -> str:
        """Index in words.

        >>> point = RecallPoint(index="ivf", list_ratio=1, probe_ratio=0.01, recall_ratio=0.95, scanned_ratio=0.01)
        >>> RetrievalSetting(point=point, list_count=4096, probe_count=32, shard_count=1, window_s=0).words
        'ivf 32 of 4,096'
        """
        return f"ivf {self.probe_count:,} of {self.list_count:,}" if self.list_count else "flat"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOption:
    """A service that was simulated."""

    setting: RetrievalSetting
    """Index, shards and window."""
    replica_count: int
    """Replicas of the whole index."""
    ranker_count: int
    """Devices that rank; 0 without a ranker."""
    device_count: int
    """All devices."""
    latency_s: Mapping[str, float]
    """Time from query to answer: mean, p50 and p99."""
    stage_s: Mapping[str, float]
    """99th percentile of each stage."""
    load_ratio: Mapping[str, float]
    """Rate over what the devices of each stage reach in their best batches."""
    batch_count: float
    """Mean queries of a batch of the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRetrieval:
    """Everything `nearpeak plan retrieval` answers."""

    target: str
    """Device."""
    vector_count: int
    """Vectors."""
    width_count: int
    """Elements of a vector."""
    number_format: str
    """Format of an element."""
    found_count: int
    """Nearest vectors that are wanted."""
    recall_ratio: float
    """Recall that is wanted."""
    rate_per_s: float
    """Queries per second."""
    limit_s: float
    """Limit of the 99th percentile."""
    ranker: str
    """Ranker in words; empty without one."""
    candidate_count: int
    """Items that are ranked for a query."""
    best: RetrievalOption
    """The cheapest service within the limits."""
    others: tuple[RetrievalOption, ...]
    """The cheapest service of each other index or number of shards that is within the limits."""
    curve: tuple[RecallPoint, ...]
    """Measured recall, least first."""
    curve_source: str
    """Vectors that the recall was measured on."""
    batch_s: Mapping[int, float]
    """Time of a batch of queries at the index of the best service."""
    rank_s: Mapping[int, float]
    """Time of ranking by queries; empty without a ranker."""
    low_ratio: float
    """Low end of the 90 % interval of the index's time over the expected time."""
    high_ratio: float
    """High end."""

    usd_per_device_hour: float | None = None
    """Price of a device, as it was given."""

    def usd_per_million_queries(self, option: RetrievalOption) -> float | None:
        """Return what a million queries cost; none without a price of a device."""
        if self.usd_per_device_hour is None:
            return None
        return option.device_count * self.usd_per_device_hour / 3600 / self.rate_per_s * 1e6

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data, with the price of a million queries."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return {**record, "usd_per_million_queries": self.usd_per_million_queries(self.best)}
