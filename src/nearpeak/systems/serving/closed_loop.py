"""Service of clients that each wait for their answer before they ask again: TTFT and TPOT at constant concurrency."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.core.systems.step_batch import StepBatch, TimeSource
from nearpeak.errors import SpecError
from nearpeak.systems.serving.latency_metrics import request_metric
from nearpeak.systems.serving.request_columns import Requests
from nearpeak.systems.serving.serving_run import serve
from nearpeak.systems.serving.step_grid import StepGrid, tabulate

MOST_REQUESTS = 1_000_000
"""Requests of a loop that is simulated."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it spread evenly over an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Equal requests at constant concurrency, from a cold start.

    >>> ClosedLoop(concurrency=2, input_tokens=8, output_tokens=10, output_spread=0.5,
    ...            requests_per_client=2).requests().output_count.tolist()
    [5, 11, 7, 14]
    """

    concurrency: int
    """Clients, each with one request under way."""
    input_tokens: int
    """Prompt tokens of a request."""
    output_tokens: int
    """Generated tokens of a request."""
    requests_per_client: int = 10
    """Requests that each client makes; the first of all clients arrive at once."""
    output_spread: float = 0.0
    """Half width of the even spread of generated tokens about their mean, as a share of it."""
    reply_tokens: int = 1
    """Tokens of one message to the client, which sees its first token with the others of the first message."""

    def __post_init__(self) -> None:
        """Refuse loads that no engine serves."""
        for name in ("concurrency", "input_tokens", "output_tokens", "requests_per_client", "reply_tokens"):
            if getattr(self, name) < 1:
                raise SpecError(f"closed loop: {name}={getattr(self, name)} must be at least 1")
        if self.concurrency * self.requests_per_client > MOST_REQUESTS:
            raise SpecError(
                f"closed loop: {self.concurrency:,} clients make over {MOST_REQUESTS:,} requests, too many to simulate"
            )

    def requests(self) -> Requests:
        """Return the requests of all clients."""
        count = self.concurrency * self.requests_per_client
        shares = 2 * (np.arange(count) * GOLDEN % 1) - 1
        outputs = np.maximum(np.rint(self.output_tokens * (1 + self.output_spread * shares)), 1).astype(np.int64)
        return Requests(
            arrival_s=np.zeros(count), input_count=np.full(count, self.input_tokens), output_count=outputs,
            concurrency_count=self.concurrency,
        )  # fmt: skip

    def table(
        self, engine: Engine, source: TimeSource, sizes: Sequence[int] = (),
        prepare: Callable[[Iterable[StepBatch]], None] | None = None, shared_s: Callable[[int], float] | None = None,
    ) -> StepGrid:  # fmt: skip
        """Return the times of the steps that such requests make: few lengths of cache, all batches up to the clients'.

        Args:
            source: times by the batches of all attention ranks together.
            sizes: batch sizes of one rank with a captured graph.
            prepare: is told all batches that the source will be asked about.
            shared_s: part of the source's time that follows the tokens of all ranks; none for 0.
        """
        inputs = self.input_tokens
        longest = inputs + int(np.ceil(self.output_tokens * (1 + self.output_spread)))
        caches = (1, inputs, (inputs + longest) // 2, longest)
        return tabulate(
            source, step_token_count=min(engine.step_token_count, self.concurrency * inputs),
            sequence_count=min(engine.sequence_count, self.concurrency), context_token_count=longest,
            sizes=sizes, caches=caches,
            prefixes=(1, *(-(-inputs * part // 8) for part in (1, 2, 4, 6)), longest),
            prepare=prepare, rank_count=engine.rank_count, shared_s=shared_s,
        )  # fmt: skip


class ServiceTimes(NamedTuple):
    """Latencies of served requests, means over all of them."""

    ttft_s: float
    """Arrival to first token."""
    tpot_s: float
    """First to last token over the tokens after the first."""
    duration_s: float
    """First arrival to last token."""
    mean_batch: float
    """Decoding sequences of a step, weighted by time."""
    queued_share: float
    """Share of the time to first token spent before any of its prompt ran."""


def closed_loop_times(loop: ClosedLoop, engine: Engine, table: StepGrid) -> ServiceTimes:
    """Return the latencies of a closed loop, ramp and drain included, as benchmarks of a fixed number of requests do.

    >>> from nearpeak.systems.serving.step_grid import linear_grid
    >>> loop = ClosedLoop(concurrency=1, input_tokens=10, output_tokens=5, requests_per_client=3)
    >>> closed_loop_times(loop, Engine(policy="vllm", kv_block_count=4), linear_grid(fixed_s=1.0))
    ServiceTimes(ttft_s=1.0, tpot_s=1.0, duration_s=15.0, mean_batch=0.8, queued_share=0.0)
    """
    outcome = serve(loop.requests(), engine, table)
    gaps, ttft = request_metric(outcome, "tpot"), float(request_metric(outcome, "ttft").mean())
    tpot = float(gaps.mean()) if len(gaps) else 0.0
    ttft += (loop.reply_tokens - 1) * tpot
    queued = float((outcome.scheduled_s - outcome.queued_s).mean())
    decoding = float(
        (outcome.last_s - outcome.first_s).sum()
    )  # by Little, their mean number times the length of the run
    return ServiceTimes(ttft, tpot, outcome.end_s, decoding / outcome.end_s, queued / ttft)
