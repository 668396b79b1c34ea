"""Sampling of a prepared case: warm-up until times are steady, then until the median's interval is narrow."""

import dataclasses
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from nearpeak.case_tensors.fresh_values import State, Varied
from nearpeak.core.runs.estimate import estimate_of, median_ranks, quantile
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.core.runs.runner_protocols import Prepared, Reading, Timer
from nearpeak.core.runs.telemetry import Span
from nearpeak.measurement.timing.clocks import SLOW_CLOCK_RATIO

WINDOW_COUNT = 5
"""Samples of each of the two windows whose agreement ends the warm-up."""
WARM_UP_RATIO = 0.5
"""Most time of the warm-up as a share of the budget, in addition to it."""
BATCH_RESOLUTIONS = 1000
"""Least length of a batch of calls, in resolutions of the timer."""
BATCH_S = 1e-4
"""Least length of a batch of hot calls: that of some hundred reads of the CPU clock."""
BEGIN_S = 3e-3
"""Time for which a host repeats a call that seems to need no batch: first calls take much longer, so that of two
processes with the same case one might batch its calls and the other not."""
HOST_BATCHES = 100
"""Most host time of a batch, in batch lengths: a clock that shows less than that is wrong, and larger batches are no
remedy."""
FIRST_COUNT, MOST_TRIED = 9, 3
"""Pairs of a call on changed inputs and a repeated call, and most repetitions before a difference counts."""
ANEW_RATIO, ANEW_S = 1.5, 1e-5
"""Factor and time by which the fastest call on changed inputs may exceed the fastest repeated call."""
LEAST_RATIO = 0.5
"""Least share of the budget that a host samples for: in a shorter time all samples may be slow, and agree.

Of thirty launches of a product next to two busy loops, two converged within 70 ms of CPU time, 15 and 33 % too slow.
"""
CHECK_EVERY = 5
"""Samples between two evaluations of the interval."""
MOST_COUNT = 5000
"""Samples after which the budget counts as spent."""
_PROCESS_S, _WALL_S = time.process_time, time.monotonic
"""Bound before a user's function can replace them."""
Runs = Iterator[Callable[[], object]]
Change = Callable[[Callable[[], object]], None]
"""Called with the run that is timed next."""
Seen = tuple[int, Mapping[str, Any]]
"""Number of the timed set of inputs, and its outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Samples of one case."""

    samples_s: tuple[float, ...]
    """Time of one call in each sample."""
    cpu_samples_s: tuple[float, ...]
    """Its CPU time."""
    host_samples_s: tuple[float, ...]
    """Its time on the host."""
    warmup_s: tuple[float, ...]
    """Samples before the times settled."""
    call_count: int
    """Calls per sample."""
    outcome: Outcome
    """Whether the median has the requested precision."""
    late_s: float = 0.0
    """Median time for which the device went on after the end of a sample was recorded."""
    slow_ratio: float = 0.0
    """Share of the samples before which the device's clock was below SLOW_CLOCK_RATIO of its highest."""
    spans_ns: tuple[Span, ...] = ()
    """Time spans of warm-up and samples."""
    seen: Seen | None = None
    """Set of inputs of a random sample, and the outputs of its last call; none where none are kept."""
    repeated: str = ""
    """Description of how much faster calls are on repeated inputs, where caches do not explain it."""


def sample(
    prepared: Prepared, timer: Timer, timing: Timing, *, keep: bool = False, last: bool = False,
    varied: Varied | None = None,
) -> Sampled:  # fmt: skip
    """Return the samples of `prepared`.

    Warm-up ends when two windows of samples agree, sampling when the 95 % interval of the median is narrow enough; on
    a host with one thread the CPU time decides both, as wall time never settles under other load. Garbage collection
    is off meanwhile.

    Args:
        keep: keep the outputs of a random sample, which the timed code cannot predict.
        last: keep those of the last sample instead, without copies in between; the timed code cannot predict it either.
        varied: the inputs, which change before each sample; at the end they are those of the kept outputs.
    """
    runs = cycle(prepared.runs)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in prepared.runs:  # one call at least of each set: first touches, caches of algorithms
            timer.read(next(runs), 1)
        call_count = batch_of(timer, runs, timing)
        change = changing(prepared, varied)
        repeated = caching_suspicion(timer, runs, call_count, change) if varied is not None and varied.changes else ""
        keeper = _Keeper(prepared, varied) if keep else _Last(prepared) if last else None
        sampled = _sampled(timer, runs, timing, call_count, keeper, change)
        if varied is not None and isinstance(keeper, _Keeper):
            varied.restore(keeper.state)
        return dataclasses.replace(sampled, repeated=repeated)
    finally:
        if enabled:
            gc.enable()


def batch_of(timer: Timer, runs: Runs, timing: Timing) -> int:
    """Return the calls per batch: one with cold caches, else as many as the timer needs.

    A timer that queues calls limits the count: beyond it, launches on the host would be timed.
    """
    if timing.cache == "cold":
        return 1
    wanted_s, count = max(BATCH_RESOLUTIONS * timer.resolution_s, BATCH_S), 1
    begun_s = _WALL_S()
    while True:
        readings = [without_result(timer.read(next(runs), count)) for _ in range(3)]
        took_s = min(reading.time_s for reading in readings)
        while count == 1 and took_s >= wanted_s and timer.mode == "host" and _WALL_S() - begun_s < BEGIN_S:
            readings.append(without_result(timer.read(next(runs), 1)))
            took_s = min(took_s, readings[-1].time_s)
        is_slow = min(reading.host_s for reading in readings) > HOST_BATCHES * wanted_s
        if took_s >= wanted_s or is_slow or count >= timer.most_calls():
            return min(count, timer.most_calls())
        wanted_count = int(1.1 * count * wanted_s / max(took_s, timer.resolution_s)) + 1
        count = min(max(count + 1, min(10 * count, wanted_count)), timer.most_calls())


def without_result(reading: Reading) -> Reading:
    """Return the times alone: kept results would fill the memory, and each call would write to new pages.

    The first touch of a page may take a host longer than a kernel.
    """
    return dataclasses.replace(reading, result=None)


def changing(prepared: Prepared, varied: Varied | None) -> Change:
    """Return the function that changes the inputs of a run before it is timed."""
    if varied is None:
        return lambda _: None
    return lambda run: varied.change(prepared.runs.index(run))


def caching_suspicion(timer: Timer, runs: Runs, call_count: int, change: Change) -> str:
    """Return that calls are much faster on repeated inputs, so that a batch would time cached results; else empty."""
    if call_count == 1:
        return ""
    least_s = 0.0, 0.0
    for _ in range(MOST_TRIED):
        changed_s, repeated_s = [], []
        for _ in range(FIRST_COUNT):
            run = next(runs)
            change(run)
            changed_s.append(timer.read(run, 1).time_s)
            repeated_s.append(timer.read(run, 1).time_s)
        least_s = min(changed_s), min(repeated_s)
        if least_s[0] <= ANEW_RATIO * least_s[1] + ANEW_S:
            return ""
    return (
        f"a call takes {least_s[0]:.4g} s where its inputs have changed, and {least_s[1]:.4g} s where it has seen them"
    )


class _Keeper:
    """Keeps the outputs of one sample, each with equal probability, without knowing their number in advance."""

    def __init__(self, prepared: Prepared, varied: Varied | None = None) -> None:
        self._prepared, self._random, self._count = prepared, random.SystemRandom(), 0
        self._varied = varied
        self.state: State = {}
        self.seen: Seen | None = None

    def offer(self, run: Callable[[], object], result: Any) -> None:
        """Copy the result of a sample, or skip it; later calls may overwrite the original."""
        self._count += 1
        if self._random.random() * self._count < 1:
            copies = {name: np.array(array) for name, array in self._prepared.outputs(result).items()}
            self.seen = self._prepared.runs.index(run), copies
            self.state = self._varied.state() if self._varied is not None else {}


class _Last:
    """Holds the result of the last sample."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._held = prepared, None  # type: tuple[Prepared, tuple[Callable[[], object], Any] | None]

    def offer(self, run: Callable[[], object], result: Any) -> None:
        """Hold the result in place of the previous one."""
        self._held = run, result

    @property
    def seen(self) -> Seen | None:
        """Number of the timed set of inputs, and its outputs."""
        if self._held is None:
            return None
        run, result = self._held
        return self._prepared.runs.index(run), self._prepared.outputs(result)


def _sampled(
    timer: Timer, runs: Runs, timing: Timing, call_count: int, keeper: _Keeper | _Last | None, change: Change
) -> Sampled:
    """Take samples until the times are steady, and from there until sampling ends."""
    readings: list[Reading] = []
    begun_ns: list[int] = []
    kept_from: int | None = None
    # On a host the budget is CPU time, so that other load does not reduce the number of samples.
    clock = _PROCESS_S if timer.mode == "host" else _WALL_S
    begun_s, begun_wall_s = clock(), _WALL_S()
    while True:
        begun_ns.append(time.monotonic_ns())
        run = next(runs)
        change(run)
        if timing.cache == "cold":
            timer.flush()
        reading = timer.read(run, call_count)
        readings.append(without_result(reading))
        spent_s, wall_s, count = clock() - begun_s, _WALL_S() - begun_wall_s, len(readings)
        if kept_from is None:
            if count % WINDOW_COUNT == 0 and is_steady(_watched(readings, timer, timing)):
                kept_from = count - 2 * WINDOW_COUNT
            elif count > 1 and (spent_s >= WARM_UP_RATIO * timing.budget_s or wall_s > timing.limit_s / 4):
                kept_from = 1 if wall_s > timing.limit_s / 4 else count
            continue
        if keeper is not None:
            keeper.offer(run, reading.result)
        outcome = _ended(readings[kept_from:], timer, timing, (spent_s, wall_s))
        if outcome is not None:
            summed = _summed(readings, kept_from, timer, call_count, outcome)
            spans = (
                ("warm-up", begun_ns[0], begun_ns[kept_from]),
                ("samples", begun_ns[kept_from], time.monotonic_ns()),
            )
            return dataclasses.replace(summed, spans_ns=spans, seen=None if keeper is None else keeper.seen)


def no_time(samples_s: Sequence[float], call_count: int, timer: Timer) -> str:
    """Return why samples are invalid: a time is zero, not finite, or below the timer's resolution; else empty.

    >>> from nearpeak.measurement.timing.clocks import HostTimer
    >>> no_time([1e-12, 1e-6], 10, HostTimer(thread_count=1, flush_bytes=0))
    "the timer's clock gives 1e-11 s for a sample of 10 calls; it tells no less than 1e-09 s"
    """
    least_s = next((sample_s for sample_s in samples_s if not math.isfinite(sample_s)), min(samples_s)) * call_count
    if 0 < least_s < math.inf and least_s >= timer.resolution_s:
        return ""
    calls = f"a sample of {call_count} calls" if call_count > 1 else "a call"
    if least_s <= 0:
        return f"{calls} took no time by the timer's clock"
    return f"the timer's clock gives {least_s:.4g} s for {calls}; it tells no less than {timer.resolution_s:.4g} s"


def _ended(readings: Sequence[Reading], timer: Timer, timing: Timing, spent: tuple[float, float]) -> Outcome | None:
    """Return the outcome with which sampling ends; none while it continues."""
    (spent_s, wall_s), count = spent, len(readings)
    if count and wall_s >= timing.limit_s / 2:
        return Outcome.BUDGET
    if count < timing.least_count:
        return None
    early = timer.mode == "host" and spent_s < LEAST_RATIO * timing.budget_s and count < MOST_COUNT
    if count % CHECK_EVERY == 0 and not early and converged(_watched(readings, timer, timing), timing.precision_ratio):
        return Outcome.CONVERGED
    return Outcome.BUDGET if spent_s >= timing.budget_s or count >= MOST_COUNT else None


def _summed(readings: Sequence[Reading], kept_from: int, timer: Timer, call_count: int, outcome: Outcome) -> Sampled:
    kept_readings = readings[kept_from:]
    return Sampled(
        samples_s=tuple(reading.time_s / call_count for reading in kept_readings),
        cpu_samples_s=tuple(reading.cpu_s / call_count for reading in kept_readings),
        host_samples_s=() if timer.mode == "host" else tuple(reading.host_s / call_count for reading in kept_readings),
        warmup_s=tuple(reading.time_s / call_count for reading in readings[:kept_from]),
        call_count=call_count, outcome=outcome,
        late_s=statistics.median(reading.late_s for reading in kept_readings),
        slow_ratio=_slow_ratio([reading.cycles_s for reading in kept_readings]),
    )  # fmt: skip


def _slow_ratio(cycles_s: Sequence[float]) -> float:
    """Return the share of samples in which the same number of cycles took much longer than in the best one.

    >>> _slow_ratio([1.0, 1.0, 1.5, 1.1]), _slow_ratio([0.0, 0.0])
    (0.25, 0.0)
    """
    least = min((time_s for time_s in cycles_s if time_s > 0), default=0.0)
    return sum(least / time_s < SLOW_CLOCK_RATIO for time_s in cycles_s if time_s > 0) / len(cycles_s)


def _watched(readings: Sequence[Reading], timer: Timer, timing: Timing) -> Sequence[float]:
    """Return the times that decide when to stop: CPU time for a single host thread."""
    if timer.mode == "host" and timing.thread_count == 1 and all(reading.cpu_s > 0 for reading in readings):
        return [reading.cpu_s for reading in readings]
    return [reading.time_s for reading in readings]


def is_steady(samples_s: Sequence[float]) -> bool:
    """Return whether the last two windows agree, so that warm-up is over.

    The second window's first sample is no outlier beyond the third quartile plus 1.5 interquartile ranges of the
    first, the mean moved by -50 % to +10 %, both quartiles by at most 5 %.

    >>> is_steady([9.0, 5.0] + [1.0] * 10), is_steady([5.0, 4.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    (True, False)
    """
    if len(samples_s) < 2 * WINDOW_COUNT:
        return False
    before, after = (sorted(samples_s[end - WINDOW_COUNT : end or None]) for end in (-WINDOW_COUNT, 0))
    if before[0] <= 0 or after[0] <= 0:  # a broken timer, for which waiting is no remedy
        return True
    low, high = quantile(before, 0.25), quantile(before, 0.75)
    if samples_s[-WINDOW_COUNT] > high + 1.5 * (high - low) + 1e-12 * high:
        return False
    if not -0.5 <= sum(after) / sum(before) - 1 <= 0.1:
        return False
    return all(abs(quantile(after, q) / quantile(before, q) - 1) <= 0.05 for q in (0.25, 0.75))


def converged(samples_s: Sequence[float], precision_ratio: float) -> bool:
    """Return whether the median's interval is narrow enough; an interval that ends at the extremes never is.

    >>> converged([1.0] * 12, 0.005), converged([1.0] * 4, 0.005), converged([1.0, 1.1] * 10, 0.005)
    (True, False, False)
    """
    low, high = median_ranks(len(samples_s))
    if low == 0 or high == len(samples_s) - 1 or min(samples_s) <= 0:
        return False
    return estimate_of(samples_s).half_width_ratio <= precision_ratio
