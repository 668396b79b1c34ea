"""Disaggregated serving: one pool of replicas computes prompts, another decodes, and caches move between them."""

from dataclasses import dataclass, replace

import numpy as np

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError
from nearpeak.systems.serving.request_columns import Floats, Requests
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.systems.serving.serving_run import serve
from nearpeak.systems.serving.step_grid import StepGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal replicas of an engine."""

    engine: Engine
    """Engine of each replica."""
    table: StepGrid
    """Time of its steps."""
    replica_count: int = 1
    """Replicas."""
    router: str = "round_robin"
    """Router policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLink:
    """What carries the caches of prompts from a replica of the first pool to the second."""

    kv_token_bytes: float
    """Bytes of the cache per token, of all layers."""
    bandwidth_bytes_per_s: float
    """Bandwidth out of one replica; infinite for none of the time."""
    latency_s: float = 0.0
    """Time of a transfer without bytes."""
    layer_count: int = 0
    """Layers that are sent as soon as they are computed; 0 to send all when the prompt is done."""

    def __post_init__(self) -> None:
        """Refuse links that carry nothing."""
        if self.kv_token_bytes < 0 or self.bandwidth_bytes_per_s <= 0 or self.latency_s < 0:
            raise SpecError(
                f"link: {self.kv_token_bytes:g} B per token, {self.bandwidth_bytes_per_s:g} B/s, {self.latency_s:g} s; "
                "bandwidth must be above 0, the others at least 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedOutcome:
    """Outcome of both pools, and of the requests as their users see it."""

    prompts: Outcome
    """First pool: every request up to its first token."""
    decodes: Outcome | None
    """Second pool: requests of more than one token, in order of their caches' arrival; none if there are none."""
    requests: Outcome
    """Times from arrival to last token; ranks and steps are those of the first pool."""
    transfer_s: Floats
    """Time from the first token until the cache is at the second pool; 0 for requests of one token."""


def serve_disaggregated(
    requests: Requests, prompts: Pool, decodes: Pool, link: CacheLink, *, is_logged: bool = False
) -> DisaggregatedOutcome:
    """Return what two pools make of requests.

    The first token comes from the first pool. Caches leave a replica one after the other; where layers are sent as they
    are computed, what its prompt's steps cover is hidden. The second pool reserves blocks when a cache arrives: caches
    that wait for blocks wait there, and never hold up the first pool. Both pools serve urgent classes first
    and need the adapter of a request, as its keys, values and next tokens are those of the adapter; each loads its own.

    A closed loop is solved in rounds: requests arrive when earlier ones finish, as found in the round before; each
    round settles a further stretch of time, until nothing changes.
    """
    if not requests.concurrency_count:
        return _serve_open(requests, prompts, decodes, link, is_logged=is_logged)
    in_flight = requests.concurrency_count
    load = replace(requests, concurrency_count=0)
    outcome = _serve_open(load, prompts, decodes, link, is_logged=is_logged)
    for _ in range(len(requests)):
        ends = np.sort(outcome.requests.last_s)
        arrivals = np.concatenate([np.zeros(in_flight), ends[: len(requests) - in_flight]])
        if np.array_equal(arrivals, load.arrival_s):
            break
        load = replace(load, arrival_s=arrivals)
        outcome = _serve_open(load, prompts, decodes, link, is_logged=is_logged)
    return outcome


def _serve_open(
    requests: Requests, prompts: Pool, decodes: Pool, link: CacheLink, *, is_logged: bool
) -> DisaggregatedOutcome:
    alone = replace(requests, output_count=np.ones(len(requests), np.int64))
    first = serve(
        alone, prompts.engine, prompts.table, replica_count=prompts.replica_count, router=prompts.router,
        is_logged=is_logged,
    )  # fmt: skip
    rows = np.flatnonzero(requests.output_count > 1)
    transfer = np.zeros(len(requests))
    whole = replace(first, requests=requests, last_s=first.first_s.copy())
    if not len(rows):
        return DisaggregatedOutcome(prompts=first, decodes=None, requests=whole, transfer_s=transfer)
    transfer[rows] = _transfers(first, rows, link)
    order = rows[np.argsort(first.first_s[rows] + transfer[rows], kind="stable")]
    classes, adapters = (None if column is None else column[order] for column in (requests.classes, requests.adapters))
    second = serve(
        Requests(
            arrival_s=(first.first_s + transfer)[order], input_count=requests.input_count[order],
            output_count=requests.output_count[order], classes=classes, adapters=adapters,
        ),
        decodes.engine, decodes.table, replica_count=decodes.replica_count, router=decodes.router, has_cache=True,
        is_logged=is_logged,
    )  # fmt: skip
    whole.last_s[order] = second.last_s
    return DisaggregatedOutcome(prompts=first, decodes=second, requests=whole, transfer_s=transfer)


def _transfers(first: Outcome, rows: np.ndarray, link: CacheLink) -> Floats:
    """Return how long after the first token each cache has arrived; caches of one replica follow each other."""
    size_s = first.requests.input_count * link.kv_token_bytes / link.bandwidth_bytes_per_s
    hidden = np.zeros(len(size_s))
    if link.layer_count:
        share = 1 / link.layer_count
        hidden = np.minimum(size_s * (1 - share), (first.first_s - first.scheduled_s) * (1 - share))
    replicas, delays = first.rank // first.engine.rank_count, np.zeros(len(size_s))
    free_s: dict[int, float] = {}
    for row in rows[np.argsort(first.first_s[rows], kind="stable")].tolist():
        replica = int(replicas[row])
        start = max(first.first_s[row], free_s.get(replica, 0.0))
        free_s[replica] = start + size_s[row] - hidden[row]
        delays[row] = free_s[replica] + link.latency_s - first.first_s[row]
    chosen: Floats = delays[rows]
    return chosen
