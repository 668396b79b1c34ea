"""A service of a language model: latencies under a load, the highest rate within limits, cost, and alternatives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.records.record_codec import Codec
from nearpeak.core.systems.serving_layout import ServingLayout

_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOption:
    """One layout of the service on all of its devices."""

    layout: ServingLayout
    """Degrees and formats of a replica."""
    replica_count: int
    """Replicas."""
    kv_token_count: int
    """Tokens that the cache of one replica holds."""
    rate_per_s: float
    """Requests per second of all replicas: served, or the most within the limits where these were searched."""
    low_per_s: float
    """Low end of the 90 % interval of that rate over seeds."""
    high_per_s: float
    """High end."""
    output_tokens_per_s: float
    """Generated tokens per second of all replicas at that rate."""
    latencies_s: Mapping[str, Mapping[str, float]]
    """`ttft`, `tpot`, `latency`, `queue` and `itl` at that rate: mean, p50, p90 and p99."""
    limiter: str
    """What binds."""
    usd_per_million_tokens: float | None = None
    """Cost of a million generated tokens; none without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServing:
    """Everything `nearpeak plan serve` answers."""

    model: str
    """Model."""
    target: str
    """Device."""
    device_count: int
    """Devices of the service."""
    engine: str
    """Engine family."""
    load: str
    """The load in words."""
    limits_s: Mapping[str, float]
    """Limit by latency; empty without limits."""
    share: float
    """Share of requests that must meet each limit."""
    best: ServingOption
    """The layout with the highest rate."""
    options: tuple[ServingOption, ...]
    """All layouts that were looked at, best first."""
    refused: Mapping[str, str]
    """Layouts that cannot serve, with the reason."""
    parts_s: Mapping[str, float]
    """Time of a typical decode step of the best layout by part."""
    step_low_ratio: float
    """Low end of the 90 % interval of a step's time over the expected time."""
    step_high_ratio: float
    """High end."""
    trust: Mapping[int, float]
    """Share of the kernels' time by steps from the data: 0 this device … 3 another maker's."""
    usd_per_device_hour: float | None = None
    """Price of one device, as it was given."""
    energy_j_per_token: float | None = None
    """Energy of one generated token at the best rate; none where the device's power is not stated."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the loads."""

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record
