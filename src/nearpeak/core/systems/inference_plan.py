"""A model behind an inference server: latencies against load, streams with deadlines, and what meets a limit."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """Latencies at one rate of Poisson arrivals."""

    rate_per_s: float
    """Requests per second that arrive."""
    p50_s: float
    """Median of arrival to end."""
    p99_s: float
    """99th percentile."""
    mean_batch: float
    """Items of a batch, as a request sees it."""
    busy_ratio: float
    """Share of the time of the instances spent in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """What one stream of requests sees."""

    name: str
    """Its name, or that of its model."""
    rate_per_s: float
    """Requests per second."""
    p50_s: float
    """Median latency."""
    p99_s: float
    """99th percentile."""
    deadline_s: float | None
    """Latency that is late beyond it; none without a deadline."""
    missed_ratio: float
    """Share of its requests that are late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetting:
    """What of a configuration a plan may change."""

    instance_count: int
    """Instances on each device, or on the host."""
    most_batch_count: int
    """Most items of a batch."""
    queue_delay_s: float
    """Time that a request may wait for others although an instance is free."""
    device_count: int
    """Devices; 0 where instances run on the host's processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServer:
    """Everything `nearpeak plan inference-server` answers."""

    models: tuple[str, ...]
    """Models, those of an ensemble in their order."""
    setting: ServerSetting
    """What the first model runs with."""
    how: str
    """How models and instances share a device, in words."""
    sharing_ratio: float
    """How much a busy instance lengthens another's batch: 0 not at all, 1 by a whole one."""
    is_sharing_assumed: bool
    """Whether that is assumed, not stated by the user."""
    capacity_per_s: float
    """Rate of requests at which the instances are always busy with the largest batches."""
    loads: tuple[LoadPoint, ...]
    """Latencies against load; empty for several models or streams."""
    asked: LoadPoint | None
    """The load that was asked for."""
    streams: tuple[StreamOutcome, ...]
    """Streams, or models with loads of their own."""
    steps: tuple[StreamOutcome, ...]
    """Steps of an ensemble, each with its own part of the latency."""
    limit_s: float | None
    """Limit of the 99th percentile."""
    highest_per_s: float | None
    """Highest rate within the limit; none without one."""
    cheapest: ServerSetting | None
    """Setting of fewest devices and instances that meets the limit at the rate; none unless both were given."""
    cheapest_p99_s: float | None
    """Its 99th percentile."""
    looked_count: int
    """Settings that were tried."""
    config: str
    """Text of config.pbtxt with the cheapest setting, else as it was read."""

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return asdict(self)
