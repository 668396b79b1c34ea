"""Outcome of a serving run: times of every request, steps of every replica; latencies are derived from them."""

from dataclasses import dataclass

import numpy as np

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.systems.serving.request_columns import Floats, Ints, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """Every step of every replica, in the order in which it was simulated."""

    start_s: Floats
    """Start."""
    duration_s: Floats
    """Duration."""
    prompt_count: Floats
    """New tokens of prompts."""
    decode_count: Floats
    """Decoding sequences."""
    kv_count: Floats
    """Tokens in the caches of the decoding sequences."""
    block_count: Floats
    """KV blocks in use, those that may be evicted left out."""
    running_count: Floats
    """Running requests."""
    waiting_count: Floats
    """Waiting requests, when the step was planned."""
    replica: Ints
    """Replica."""

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of requests on replicas of an engine gave."""

    engine: Engine
    """Engine of every replica."""
    requests: Requests
    """Requests with their arrivals, those of a closed loop as they happened."""
    queued_s: Floats
    """When each request came to an engine."""
    scheduled_s: Floats
    """When the first step with the request began."""
    first_s: Floats
    """When its first token was there."""
    last_s: Floats
    """When its last token was there."""
    preempted_count: Ints
    """How often it lost its cache."""
    reused_count: Ints
    """Tokens of its prompt that came from the prefix cache."""
    rank: Ints
    """Rank that served it, counted over all replicas."""
    step_count: Ints
    """Steps of each replica."""
    busy_s: Floats
    """Time in steps of each replica."""
    rented_s: Floats
    """Time that each replica was there, from its start to its end or that of the run."""
    evicted_count: Ints
    """Hash blocks that each rank evicted."""
    unused_block_count: Ints
    """KV blocks of each rank at the end that no request holds; all of them, as blocks are conserved."""
    steps: StepLog | None = None
    """Steps, where they were recorded."""

    @property
    def end_s(self) -> float:
        """Time at which the last request finished."""
        return float(np.max(self.last_s))
