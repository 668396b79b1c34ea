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
    """Low end of the 90 % interval of that rate over seeds; the rate itself where one seed tells none."""
    high_per_s: float
    """High end."""
    output_tokens_per_s: float
    """Generated tokens per second of all replicas at that rate."""
    latencies_s: Mapping[str, Mapping[str, float]]
    """`ttft`, `tpot`, `latency`, `queue` and `itl` at that rate: mean, p50, p90 and p99 over all seeds."""
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

    def missed(self, limits_s: Mapping[str, float], tail: str) -> tuple[str, ...]:
        """Return the latencies whose tail, `p99`, exceeds its limit; requests of one token have no time per token."""
        return tuple(
            name
            for name, limit in limits_s.items()
            if name in self.latencies_s and self.latencies_s[name][tail] > limit
        )


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
class LoggedLatency:
    """A statistic of the latencies in a request log, and what is predicted for the same requests."""

    name: str
    """`ttft`, `tpot` or `latency`."""
    statistic: str
    """`mean`, `p50` or `p99`."""
    measured_s: float
    """Of the log."""
    predicted_s: float
    """Of the simulated run of its requests."""
    request_count: int
    """Requests that have both."""

    @property
    def error_ratio(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEdit:
    """A change of format or degree, and the decode step that it has at the same load."""

    words: str
    """Options that state it."""
    step_s: float | None = None
    """Expected time of the step; none where the change does not fit."""
    low_s: float = 0.0
    """Low end of its 90 % interval by the kernels' own."""
    high_s: float = 0.0
    """High end."""
    now_s: float = 0.0
    """Time of the step as it is."""
    kv_token_count: int = 0
    """Tokens that the caches of all replicas hold."""
    is_beyond: bool = False
    """Whether its step lies outside the interval of the present one."""
    reason: str = ""
    """Why it does not fit, or is not modelled."""


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
    logged: tuple[LoggedLatency, ...] = ()
    """Predicted latencies beside those of the request log that was served; empty where it holds none."""
    edits: tuple[ServiceEdit, ...] = ()
    """Changes of formats and degrees; empty where nobody asked for them."""
    price_source: str = ""
    """Where the price of a device was found, and when; empty where it was not stated."""
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

    @property
    def tail(self) -> str:
        """Name of the quantile that limits are compared with, `p99`."""
        return f"p{100 * self.share:g}"

    def meets_limits(self) -> bool:
        """Return whether the best layout meets every limit."""
        if self.is_searched:
            return bool(self.best.rate_per_s)
        return not self.best.missed(self.limits_s, self.tail)

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
