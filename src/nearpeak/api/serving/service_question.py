"""A question about a service: load, limits and settings, and the requests that are drawn for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import fmean
from typing import Any

import numpy as np

from nearpeak.core.systems.service_settings import ServiceSettings
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError
from nearpeak.systems.serving.engine_costs import EngineCosts, engine_costs
from nearpeak.systems.serving.latency_metrics import Limits, Window, steady, whole
from nearpeak.systems.serving.loads.arrival_process import Lengths, closed_load, open_load
from nearpeak.systems.serving.request_columns import Floats, Requests
from nearpeak.systems.serving.serving_outcome import Outcome

REQUEST_COUNTS = (300, 20_000)
"""Least and most requests of a load that is drawn."""
LOAD_S, STARTS = 40.0, 10
"""Length of a load that is drawn, in which as many requests come and go as run at once several times over; and starts
of a replica that it lasts at least, where replicas follow the load."""
RAMP_RATIO = 0.2
"""Share of a drawn load that arrives before the service is in its steady state, and does not count."""
_CLASSES, _ADAPTERS = 2, 3
"""Places of the draws of classes and adapters beside those of gaps and lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQuestion:
    """A load, or limits within which the highest rate is searched for."""

    engine: str = "vllm_v1"
    """Engine family, or a TOML file of one."""
    settings: ServiceSettings = field(default_factory=ServiceSettings)
    """What the operator sets."""
    requests: Requests | None = None
    """Requests of a trace."""
    measured_s: Mapping[str, Floats] = field(default_factory=dict)
    """Latencies of these requests, `ttft`, `tpot` and `latency`, where the trace is the log of a run."""
    rate_per_s: float = 0.0
    """Rate of arrivals; 0 for none."""
    gap_cv_ratio: float = 1.0
    """Standard deviation of the gaps between arrivals over their mean: 1 for Poisson, above 1 bursts, 0 a clock."""
    concurrency: int = 0
    """Clients of a closed loop; 0 for none."""
    input_tokens: Lengths = 1024
    """Tokens of prompts."""
    output_tokens: Lengths = 256
    """Generated tokens."""
    limits: Limits = field(default_factory=Limits)
    """Latencies that a share of the requests must meet."""
    share: float = 0.99
    """That share: 0.5, 0.9 or 0.99, which answers show."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of the loads that are drawn."""

    def __post_init__(self) -> None:
        """Refuse a share whose tail no answer shows, and a question without seeds."""
        if self.share not in (0.5, 0.9, 0.99) or not self.seeds:
            raise SpecError(
                f"service question: share={self.share:g} must be 0.5, 0.9 or 0.99; {len(self.seeds)} seeds, at least 1"
            )

    @property
    def tail(self) -> str:
        """Name of the quantile that limits are compared with, `p99`."""
        return f"p{100 * self.share:g}"

    @property
    def costs(self) -> EngineCosts:
        """Costs of the engine."""
        return engine_costs(self.engine)

    @property
    def is_search(self) -> bool:
        """Whether the highest rate within limits is searched for."""
        return self.requests is None and not self.rate_per_s and not self.concurrency

    def load(self, rate_per_s: float, seed: int) -> Requests:
        """Return the requests of a rate, or of the clients, and a seed."""
        if self.requests is not None:
            return self.requests
        lengths: dict[str, Any] = {"input_count": self.input_tokens, "output_count": self.output_tokens, "seed": seed}
        if self.concurrency:
            count = max(REQUEST_COUNTS[0], 4 * self.concurrency)
            return self._marked(closed_load(self.concurrency, count, **lengths), seed)
        length_s = max(LOAD_S, STARTS * self.settings.start_s)
        count = min(max(round(rate_per_s * length_s), REQUEST_COUNTS[0]), REQUEST_COUNTS[1])
        return self._marked(open_load(rate_per_s, count, cv=self.gap_cv_ratio, **lengths), seed)

    def _marked(self, requests: Requests, seed: int) -> Requests:
        """Return the requests with the classes, adapters and shared prefix that the settings state."""
        settings, count, more = self.settings, len(requests), dict[str, Any]()
        if settings.urgent_ratio:
            drawn = np.random.default_rng([seed, _CLASSES]).random(count)
            more["classes"] = (drawn >= settings.urgent_ratio).astype(np.int64)
        if settings.adapter_count:
            more["adapters"] = np.random.default_rng([seed, _ADAPTERS]).integers(0, settings.adapter_count, count)
        shared = settings.prefix_token_count // settings.block_token_count
        if shared:
            more |= {
                "hash_token_count": settings.block_token_count, "hash_ids": np.tile(np.arange(shared), count),
                "hash_starts": np.arange(count + 1) * shared,
            }  # fmt: skip
        return replace(requests, **more) if more else requests

    def adapted(self, layout: ServingLayout) -> ServingLayout:
        """Return a layout with the adapters that the settings state and the requests ask for."""
        settings, asked_count = self.settings, self.settings.adapter_count
        if not settings.adapter_slot_count:
            return layout
        if self.requests is not None:
            named = self.requests.adapters
            asked_count = 0 if named is None else len(np.unique(named[named >= 0]))
        return replace(layout, adapter_slot_count=settings.adapter_slot_count, adapter_count=asked_count,
                       adapter_rank=settings.adapter_rank)  # fmt: skip

    def window(self) -> Callable[[Outcome], Window]:
        """Return the function that gives the part of a run that counts."""
        if self.requests is not None:
            return whole
        if self.concurrency:
            return lambda outcome: steady(outcome, ramp_count=self.concurrency)
        return lambda outcome: steady(outcome, ramp_count=round(RAMP_RATIO * len(outcome.requests.arrival_s)))

    def longest_context(self) -> int:
        """Return the longest context of the load."""
        if self.requests is not None:
            return int((self.requests.input_count + self.requests.output_count).max())
        lengths = (self.input_tokens, self.output_tokens)
        return int(sum(length if isinstance(length, int) else max(length) for length in lengths))

    def mean_lengths(self) -> tuple[float, float]:
        """Return the mean tokens of prompts and of outputs."""
        if self.requests is not None:
            return float(self.requests.input_count.mean()), float(self.requests.output_count.mean())
        inputs, outputs = self.input_tokens, self.output_tokens
        return (float(inputs if isinstance(inputs, int) else fmean(inputs)),
                float(outputs if isinstance(outputs, int) else fmean(outputs)))  # fmt: skip

    def words(self) -> str:
        """Return the load in words.

        >>> ServiceQuestion(rate_per_s=2.0).words()
        'Poisson arrivals at 2/s, 1,024 tokens in, 256 out'
        """
        if self.requests is not None:
            count, rate = len(self.requests), self.requests.rate
            words = f"{count:,} request{'s' * (count > 1)} of a trace, "
            return words + (f"{rate:.3g}/s on average" if isfinite(rate) else "all at once")
        lengths = f"{_length_words(self.input_tokens)} tokens in, {_length_words(self.output_tokens)} out"
        if self.concurrency:
            return f"closed loop of {self.concurrency} client{'s' * (self.concurrency > 1)}, {lengths}"
        gaps = "Poisson" if self.gap_cv_ratio == 1 else f"gamma (cv {self.gap_cv_ratio:g})"
        kind = f"{gaps} arrivals at "
        kind += "the highest rate within the limits" if self.is_search else f"{self.rate_per_s:g}/s"
        return f"{kind}, {lengths}"


def _length_words(lengths: Lengths) -> str:
    return f"{lengths:,}" if isinstance(lengths, int) else f"{sum(lengths) / len(lengths):,.0f} (drawn)"
