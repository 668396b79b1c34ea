"""Several models on one device: each with its batcher and instances, batches longer while others are busy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.batch_queue import (
    BatchTimes,
    ServedBatches,
    first_free,
    largest_preferred,
    waiting_count,
)
from nearpeak.systems.serving.inference_server.model_config import ModelConfig
from nearpeak.systems.serving.request_columns import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A model with its requests."""

    config: ModelConfig
    """Batching and instances."""
    times: BatchTimes
    """Times of its batches alone on the device."""
    arrival_s: Floats
    """Arrivals, in order."""


class _Queue:
    """A model's requests and instances while the device is simulated."""

    def __init__(self, tenant: Tenant) -> None:
        config = tenant.config
        self.moments: list[float] = tenant.arrival_s.tolist()
        self.most = max(config.most_batch_count, 1) if config.has_dynamic_batching else 1
        self.preferred = sorted(config.preferred_count) or [self.most]
        self.delay_s = config.queue_delay_s if config.has_dynamic_batching else 0.0
        self.free = [0.0] * config.instance_count
        self.seconds: list[float] = tenant.times.by_size(self.most).tolist()
        self.request_s, self.head, self.count = tenant.times.request_s, 0, len(self.moments)
        self.start_s, self.end_s = np.zeros(self.count), np.zeros(self.count)
        self.sizes = np.zeros(self.count, np.int64)

    def following(self) -> tuple[float, int, int]:
        """Return when the next batch begins, its requests and its instance."""
        instance = first_free.plain(self.free)
        oldest = self.moments[self.head]
        now = max(self.free[instance], oldest)
        count = waiting_count.plain(self.moments, self.head, self.count, now, self.most)
        deadline, target = oldest + self.delay_s, self.preferred[-1]
        if count < target and now < deadline:
            last = self.head + target - 1
            now = min(deadline, self.moments[last]) if last < self.count else deadline
            count = waiting_count.plain(self.moments, self.head, self.count, now, self.most)
        if now < deadline:
            count = largest_preferred.plain(self.preferred, count)
        return now, count, instance

    def run(self, now: float, count: int, instance: int, slowness: float) -> None:
        """Run a batch."""
        end = now + (self.seconds[count] + (count - 1) * self.request_s) * slowness
        self.free[instance] = end
        rows = slice(self.head, self.head + count)
        self.start_s[rows], self.end_s[rows], self.sizes[rows] = now, end, count
        self.head += count


def serve_tenants(tenants: Sequence[Tenant], sharing_ratio: float) -> tuple[ServedBatches, ...]:
    """Return what models that share a device make of their requests, batch by batch in the order of their begin.

    Args:
        sharing_ratio: how much each busy instance of any model lengthens a batch that begins: 1 where they take turns,
            0 where each has a part of its own (and times of that part).

    Raises:
        SpecError: arrivals of a model are none, or go back.
    """
    for tenant in tenants:
        if not len(tenant.arrival_s) or (np.diff(tenant.arrival_s) < 0).any():
            raise SpecError(f"model {tenant.config.name!r}: arrivals must be some, and must not go back")
    queues = [_Queue(tenant) for tenant in tenants]
    waiting = {place: queue.following() for place, queue in enumerate(queues)}
    while waiting:
        place = min(waiting, key=lambda other: waiting[other][0])
        now, count, instance = waiting.pop(place)
        busy = sum(end > now for queue in queues for end in queue.free)
        queues[place].run(now, count, instance, 1.0 + sharing_ratio * busy)
        if queues[place].head < queues[place].count:
            waiting[place] = queues[place].following()
    return tuple(
        ServedBatches(arrival_s=tenant.arrival_s, start_s=queue.start_s, end_s=queue.end_s, batch_count=queue.sizes)
        for tenant, queue in zip(tenants, queues, strict=True)
    )
