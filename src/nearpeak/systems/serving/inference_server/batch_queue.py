"""A model behind a dynamic batcher: latencies of requests by arrivals, batch times, instances and queue delay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled_exactly
from nearpeak.errors import SpecError
from nearpeak.systems.serving.inference_server.model_config import ModelConfig
from nearpeak.systems.serving.request_columns import Floats, Ints
from nearpeak.units import show

PLAIN_ITEMS = 100_000
"""Requests that plain Python serves for about the time that compiling takes."""
DRAWS = 8191


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Time of a batch on one instance, and how instances on one device hinder each other."""

    batch_count: tuple[int, ...]
    """Batch sizes whose times are known, rising."""
    seconds_s: tuple[float, ...]
    """Their times, in between linear and beyond the last along its segment, or in proportion where that one falls."""
    sharing_ratio: float = 0.0
    """How much a busy instance of the same device lengthens a batch: 0 not at all, 1 as if they took turns."""
    request_s: float = 0.0
    """Time that each request of a batch adds: its tensors are gathered into the batch and scattered out of it."""
    cv_ratio: float = 0.0
    """Standard deviation of a batch's time over its mean (log-normal)."""
    extra_s: tuple[float, ...] = ()
    """What successive batches take beyond the time of their size, as a server's log has it; used in a circle."""

    def __post_init__(self) -> None:
        """Refuse times that no batch has."""
        rises = all(first < second for first, second in zip(self.batch_count, self.batch_count[1:], strict=False))
        if (
            len(self.batch_count) != len(self.seconds_s)
            or not self.batch_count
            or not rises
            or min(self.seconds_s) <= 0
        ):
            raise SpecError("batch times: need rising batch sizes, and a time above 0 for each")

    def by_size(self, most: int) -> Floats:
        """Return the time of each batch size from 0 to `most`."""
        if len(self.batch_count) == 1:
            return np.full(most + 1, self.seconds_s[0]) * np.maximum(np.arange(most + 1) / self.batch_count[0], 1)
        counts = np.arange(most + 1)
        slope = (self.seconds_s[-1] - self.seconds_s[-2]) / (self.batch_count[-1] - self.batch_count[-2])
        per_item_s = slope if slope > 0 else self.seconds_s[-1] / self.batch_count[-1]
        beyond = np.maximum(counts - self.batch_count[-1], 0) * per_item_s
        times: Floats = np.interp(counts, self.batch_count, self.seconds_s) + beyond
        return times


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBatches:
    """What a batcher made of requests."""

    arrival_s: Floats
    """When each request came."""
    start_s: Floats
    """When its batch began."""
    end_s: Floats
    """When its batch ended."""
    batch_count: Ints
    """Items of its batch."""

    @property
    def latency_s(self) -> Floats:
        """Time from arrival to end."""
        return self.end_s - self.arrival_s

    def tail_s(self, *, share: float = 0.99, ramp_ratio: float = 0.0) -> float:
        """Return the latency that a share of the requests do not exceed, those that come first left out."""
        return float(np.quantile(self.latency_s[round(ramp_ratio * len(self.arrival_s)) :], share))


def serve_batches(
    arrivals_s: Floats, config: ModelConfig, times: BatchTimes, *, items: int = 1, device_count: int = 1,
    concurrency: int = 0, think_s: float = 0.0, seed: int = 0,
) -> ServedBatches:  # fmt: skip
    """Return the latencies of requests at a model.

    An instance that is free takes the oldest requests: at once where a preferred batch (without any, a full one) can be
    formed or the oldest has waited for the queue delay; otherwise it waits for more, at most until then.

    Args:
        items: items of a request.
        device_count: devices with instances, where the configuration names none.
        concurrency: requests that a closed loop keeps in flight; 0 for arrivals as given. In a closed loop the length
            of `arrivals_s` is the number of requests.
        think_s: time from the end of a request until its client of a closed loop sends the next: network and client.

    Raises:
        SpecError: a request is larger than a batch, or arrivals go back.
    """
    most = max(config.most_batch_count, 1) if config.has_dynamic_batching else items
    if items > max(config.most_batch_count, 1):
        raise SpecError(f"{config.words}: a request of {items} items exceeds max_batch_size {config.most_batch_count}")
    if len(arrivals_s) == 0 or (not concurrency and (np.diff(arrivals_s) < 0).any()):
        raise SpecError(f"{config.words}: arrivals must be some, and must not go back")
    devices = len(config.device_numbers) or device_count
    preferred = sorted(config.preferred_count) or [most]
    noise = np.ones(1)
    if times.cv_ratio:
        sigma = np.log1p(times.cv_ratio**2) ** 0.5
        noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, DRAWS)
    count, in_flight = len(arrivals_s), concurrency or len(arrivals_s)
    moments = np.full(count, np.inf)
    moments[:in_flight] = 0.0 if concurrency else arrivals_s
    columns, delay_s = np.zeros((3, count)), config.queue_delay_s if config.has_dynamic_batching else 0.0
    _serve(
        moments, columns, np.zeros(config.instance_count * devices), times.by_size(most),
        np.array([size // items for size in preferred if size >= items] or [1], np.int64), noise,
        np.array(times.extra_s or (0.0,)),
        np.array([in_flight, most // items, items, devices], np.int64),
        np.array([delay_s, times.sharing_ratio, think_s, times.request_s]),
    )  # fmt: skip
    return ServedBatches(
        arrival_s=moments, start_s=columns[0], end_s=columns[1], batch_count=columns[2].astype(np.int64)
    )


@compiled_exactly(PLAIN_ITEMS, owned=False)
def _serve(
    moments: Any, columns: Any, free: Any, seconds: Any, preferred: Any, noise: Any, extra: Any, limits: Any,
    rates: Any,
) -> None:  # fmt: skip
    """Form batch after batch; `moments` are arrivals, in order as far as they are known."""
    known, most, items, devices = limits[0], limits[1], limits[2], limits[3]
    total, head, batches = len(moments), 0, 0
    while head < total:
        instance = first_free(free)
        now = max(free[instance], moments[head])
        count = waiting_count(moments, head, known, now, most)
        target = preferred[len(preferred) - 1]
        if count < target and now < moments[head] + rates[0]:
            deadline = moments[head] + rates[0]
            last = head + target - 1
            now = min(deadline, moments[last]) if last < known else deadline
            count = waiting_count(moments, head, known, now, most)
        if now < moments[head] + rates[0]:
            count = largest_preferred(preferred, count)
        busy = 1.0
        for other in range(instance % devices, len(free), devices):
            if other != instance and free[other] > now:
                busy += rates[1]
        end = now + (seconds[count * items] + (count - 1) * rates[3]) * busy * noise[batches % len(noise)]
        end += extra[batches % len(extra)]
        free[instance] = end
        batches += 1
        for place in range(head, head + count):
            columns[0][place], columns[1][place], columns[2][place] = now, end, count * items
        head += count
        for _ in range(count):
            if known < total:
                insert(moments, known, end + rates[2])
                known += 1


@compiled_exactly(PLAIN_ITEMS, owned=False)
def first_free(free: Any) -> int:
    """Return the instance that is free first."""
    first = 0
    for other in range(len(free)):
        if free[other] < free[first]:
            first = other
    return first


@compiled_exactly(PLAIN_ITEMS, owned=False)
def waiting_count(moments: Any, head: int, known: int, now: float, most: int) -> int:
    """Return the requests that have come and fit into a batch."""
    count = 0
    while count < most and head + count < known and moments[head + count] <= now:
        count += 1
    return count


@compiled_exactly(PLAIN_ITEMS, owned=False)
def largest_preferred(preferred: Any, count: int) -> int:
    """Return the largest preferred batch that can be formed, or all that wait."""
    best = 0
    for place in range(len(preferred)):
        if preferred[place] <= count:
            best = preferred[place]
    return best if best > 0 else count


@compiled_exactly(PLAIN_ITEMS, owned=False)
def insert(moments: Any, known: int, moment: float) -> None:
    """Put an arrival into its place among those that are known."""
    place = known
    while place > 0 and moments[place - 1] > moment:
        moments[place] = moments[place - 1]
        place -= 1
    moments[place] = moment


def serve_ensemble(
    arrivals_s: Floats, steps: Sequence[tuple[ModelConfig, BatchTimes]], *, items: int = 1, seed: int = 0
) -> tuple[ServedBatches, ...]:
    """Return what each step of a chain of models makes of requests that pass from one to the next."""
    outcomes, moments = [], arrivals_s
    place = np.arange(len(arrivals_s))
    for number, (config, times) in enumerate(steps):
        order = np.argsort(moments, kind="stable")
        served = serve_batches(moments[order], config, times, items=items, seed=seed + number)
        back = np.empty(len(order), np.int64)
        back[order] = place
        outcomes.append(ServedBatches(
            arrival_s=moments, start_s=served.start_s[back], end_s=served.end_s[back],
            batch_count=served.batch_count[back],
        ))  # fmt: skip
        moments = outcomes[-1].end_s
    return tuple(outcomes)


def cheapest(
    configs: Sequence[ModelConfig], run: Callable[[ModelConfig], ServedBatches], *, limit_s: float, share: float = 0.99,
    ramp_ratio: float = 0.0,
) -> tuple[ModelConfig, float]:  # fmt: skip
    """Return the configuration of fewest instances, then lowest tail, that meets a limit of latency, and its tail.

    Raises:
        SpecError: none does; the message says which comes nearest.
    """
    tails = [(run(config).tail_s(share=share, ramp_ratio=ramp_ratio), config) for config in configs]
    good = [(config.instance_count, tail, place) for place, (tail, config) in enumerate(tails) if tail <= limit_s]
    if not good:
        tail, config = min(tails, key=lambda pair: pair[0])
        raise SpecError(
            f"no configuration meets p{share * 100:g} <= {show(limit_s, 's')}; nearest: {config.instance_count} "
            f"instances, batches to {config.most_batch_count}, delay {show(config.queue_delay_s, 's')} at "
            f"{show(tail, 's')}"
        )
    _, tail, place = min(good)
    return tails[place][1], tail
