"""A service of a language model: latencies under a load, the highest rate within limits, cost, and alternatives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.core.records.record_codec import Codec, Shape
from nearpeak.core.systems.plan_answer import MeasuredNeighbour
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.system_timeline import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOption:
    """One layout of the service on all of its devices."""

    layout: ServingLayout
    """Degrees and formats of a replica; of disaggregated pools, of one that computes prompts."""
    replica_count: int
    """Replicas."""
    decode_layout: ServingLayout | None = None
    """Degrees and formats of a replica that decodes, where pools are disaggregated."""
    decode_replica_count: int = 0
    """Replicas that decode."""
    kv_token_count: int
    """Tokens that the cache of one replica holds, of disaggregated pools one that decodes."""
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
    class_latencies_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The 99th percentile of the same by priority class; empty where all requests are of one."""
    limiter: str
    """What binds."""
    reused_ratio: float = 0.0
    """Share of the tokens of prompts that came from the prefix cache."""
    mean_device_count: float = 0.0
    """Devices that are there in the mean; fewer than all where replicas follow the load."""
    usd_per_million_tokens: float | None = None
    """Cost of a million generated tokens; none without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimeline:
    """Means over equal stretches of a run, all replicas together."""

    edge_s: tuple[float, ...]
    """Ends of the stretches, one more than there are."""
    decode_count: tuple[float, ...]
    """Decoding sequences."""
    waiting_count: tuple[float, ...]
    """Waiting requests."""
    kv_ratio: tuple[float, ...]
    """KV blocks in use, of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServing:
    """Everything `nearpeak plan serve` answers for one kind of device and format."""

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
    is_host_assumed: bool = False
    """Whether the host times of the engine are assumed, not fitted to measurements."""
    is_searched: bool = False
    """Whether the rate is the highest within the limits, which were searched for."""
    usd_per_device_hour: float | None = None
    """Price of one device, as it was given, or as it follows from owning it."""
    energy_j_per_token: float | None = None
    """Energy of one generated token at the best rate; none where the device's power is not stated."""
    request_energy_j: float | None = None
    """Likewise of one request."""
    power_w: float | None = None
    """Mean power of one device at the best rate."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the loads."""
    neighbour: MeasuredNeighbour | None = None
    """The nearest public measurement; none where no device and model are near."""
    timeline: ServiceTimeline | None = None
    """Batch, queue and cache over the run of the best layout."""
    spans: tuple[Span, ...] = ()
    """Its steps; records do not hold them."""
    notes: tuple[str, ...] = ()
    """Assumptions, a sentence each."""

    def meets_limits(self) -> bool:
        """Return whether the best layout meets every limit."""
        if self.is_searched:
            return bool(self.best.rate_per_s)
        tails = ((self.best.latencies_s.get(name), limit) for name, limit in self.limits_s.items())
        return all(not tail or tail["p99"] <= limit for tail, limit in tails)

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChoice:
    """Services on several kinds and numbers of devices and in several formats, side by side."""

    plans: tuple[PlannedServing, ...]
    """Best first: those that meet the limits before those that do not, then by cost or by tokens per device."""
    front: tuple[bool, ...]
    """Of each, whether no other has more requests per second at lower or equal cost (or devices) and latency."""
    refused: Mapping[str, str]
    """Devices and formats that cannot serve, with the reason."""

    def record(self) -> dict[str, Any]:
        """Return the choice as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record


_RECORDS = Codec(pairs_as_objects=True, shapes={PlannedServing: Shape(omitted={"spans": ()})})
