"""Several models on one device: each with its batcher and instances, batches longer while others are busy."""

from bisect import bisect_right
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
    """Arrivals, in order; of an ensemble's step those of the ensemble."""
    after: tuple[int, ...] = ()
    """Places of the tenants whose results its requests wait for."""
    item_count: int = 1
    """Items of a request."""
    device_count: int = 1
    """Devices with instances, where the configuration names none."""

    @property
    def devices(self) -> tuple[object, ...]:
        """Device of each instance; those on the host's processors share none.

        >>> config = ModelConfig(name="net", most_batch_count=1, instance_count=2, device_numbers=(0, 3))
        >>> times = BatchTimes(batch_count=(1,), seconds_s=(1.0,))
        >>> Tenant(config=config, times=times, arrival_s=np.zeros(1)).devices
        (0, 3, 0, 3)
        """
        numbers: Sequence[object] = self.config.device_numbers or range(self.device_count)
        if self.config.instance_kind == "KIND_CPU":
            numbers = [(self.config.name, place) for place in range(self.config.instance_count)]
            return tuple(numbers)
        return tuple(numbers) * self.config.instance_count


class _Queue:
    """A model's requests and instances while the device is simulated."""

    def __init__(self, tenant: Tenant) -> None:
        config, items, total = tenant.config, tenant.item_count, len(tenant.arrival_s)
        self.moments: list[float] = [] if tenant.after else tenant.arrival_s.tolist()
        self.requests: list[int] = [] if tenant.after else list(range(total))
        self.devices, self.items = tenant.devices, items
        self.most = max(config.most_batch_count // items, 1) if config.has_dynamic_batching else 1
        self.preferred = [size // items for size in sorted(config.preferred_count) if size >= items] or [self.most]
        self.delay_s = config.queue_delay_s if config.has_dynamic_batching else 0.0
        self.free = [0.0] * len(self.devices)
        self.seconds: list[float] = tenant.times.by_size(self.most * items).tolist()
        self.request_s, self.head = tenant.times.request_s, 0
        self.missing_count = np.full(total, len(tenant.after))
        self.arrival_s, self.start_s, self.end_s = (np.zeros(total) for _ in range(3))
        self.arrival_s[:] = 0.0 if tenant.after else tenant.arrival_s
        self.sizes = np.zeros(total, np.int64)

    def following(self) -> tuple[float, int, int]:
        """Return when the next batch begins, its requests and its instance."""
        instance, known = first_free.plain(self.free), len(self.moments)
        oldest = self.moments[self.head]
        now = max(self.free[instance], oldest)
        count = waiting_count.plain(self.moments, self.head, known, now, self.most)
        deadline, target = oldest + self.delay_s, self.preferred[-1]
        if count < target and now < deadline:
            last = self.head + target - 1
            now = min(deadline, self.moments[last]) if last < known else deadline
            count = waiting_count.plain(self.moments, self.head, known, now, self.most)
        if now < deadline:
            count = largest_preferred.plain(self.preferred, count)
        return now, count, instance

    def run(self, now: float, count: int, instance: int, slowness: float) -> list[int]:
        """Run a batch, and return its requests."""
        end = now + (self.seconds[count * self.items] + (count - 1) * self.request_s) * slowness
        self.free[instance] = end
        rows = self.requests[self.head : self.head + count]
        self.start_s[rows], self.end_s[rows], self.sizes[rows] = now, end, count * self.items
        self.head += count
        return rows

    def take(self, request: int, moment: float) -> None:
        """Take the result of a model that a request passed; it queues once it has those of all."""
        self.missing_count[request] -= 1
        self.arrival_s[request] = max(self.arrival_s[request], moment)
        if not self.missing_count[request]:
            place = bisect_right(self.moments, self.arrival_s[request], lo=self.head)
            self.moments.insert(place, float(self.arrival_s[request]))
            self.requests.insert(place, request)


def serve_tenants(tenants: Sequence[Tenant], sharing_ratio: float) -> tuple[ServedBatches, ...]:
    """Return what models that share a device make of their requests, batch by batch in the order of their begin.

    Batches run in the order of their begin and give their results later, so that a model which waits for others knows
    all requests that can join the batch that begins next.

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
    waiting = {place: queue.following() for place, queue in enumerate(queues) if queue.moments}
    while waiting:
        place = min(waiting, key=lambda other: waiting[other][0])
        now, count, instance = waiting.pop(place)
        here = queues[place].devices[instance]
        busy = sum(end > now and device == here for queue in queues
                   for end, device in zip(queue.free, queue.devices, strict=True))  # fmt: skip
        rows = queues[place].run(now, count, instance, 1.0 + sharing_ratio * busy)
        for later, tenant in enumerate(tenants):
            if place in tenant.after:
                for row in rows:
                    queues[later].take(row, queues[place].end_s[row])
            if (later == place or place in tenant.after) and queues[later].head < len(queues[later].moments):
                waiting[later] = queues[later].following()
    return tuple(
        ServedBatches(arrival_s=queue.arrival_s, start_s=queue.start_s, end_s=queue.end_s, batch_count=queue.sizes)
        for queue in queues
    )
