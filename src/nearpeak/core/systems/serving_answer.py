"""Answer about a served language model: latencies, throughput, limit, cost, and how far the data are from it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span90:
    """An expected value with its 90 % interval."""

    value: float
    """Expected value."""
    low: float
    """Low end."""
    high: float
    """High end."""

    def __contains__(self, measured: float) -> bool:
        """Return whether a measured value lies inside."""
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingAnswer:
    """Latencies and throughput of one replica under one load."""

    model: str
    """Model."""
    target: str
    """Device."""
    device_count: int
    """Devices of the replica."""
    engine: str
    """Engine family."""
    load: str
    """The load in words: `closed loop of 64 clients`, `batch of 16`, `all requests at once`."""
    ttft_s: Span90 | None
    """Time to the first token, mean over requests; none where the load has no such time."""
    tpot_s: Span90
    """Time per output token after the first: (last - first) / (tokens - 1), mean over requests."""
    latency_s: float
    """Arrival to last token: of the mean request, of the whole batch for a batch."""
    output_tokens_per_s: float
    """Generated tokens of the replica per second."""
    mean_batch: float
    """Sequences that decode together, in the mean."""
    kv_token_count: int
    """Tokens that the cache holds."""
    limiter: str
    """What most of a step's time goes to, or `KV memory` where the cache keeps requests waiting."""
    parts_s: Mapping[str, float]
    """Time of a typical decode step by part: product, attention, pointwise, collective, host."""
    usd_per_million_tokens: float | None
    """Cost of a million generated tokens; none without a price."""
    trust: Mapping[int, float]
    """Share of kernel time by steps from the data: 0 this device, 1 its architecture, 2 its maker, 3 another's."""
    notes: tuple[str, ...] = ()
    """Assumptions, a sentence each."""
