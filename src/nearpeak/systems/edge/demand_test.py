"""Schedulability tests of one engine without preemption: demand by deadline (EDF) and backlog (FIFO)."""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MOST_POINTS = 400_000
"""Times at which a test looks; beyond it stays open."""
Ints = npt.NDArray[np.int64]


class EngineTask(NamedTuple):
    """Recurring work of one engine, in ticks; arrivals are at least a period apart."""

    time: int
    """Duration."""
    period: int
    """Least time between arrivals."""
    window: int
    """Time from arrival within which it must end."""
    slice: int = 0
    """Longest part that runs without a break; the whole where it is 0."""

    @property
    def longest(self) -> int:
        """Longest part that runs without a break."""
        return self.slice or self.time


class Violation(NamedTuple):
    """An interval in which more work is due than fits."""

    length: int
    """Length of the interval from the arrivals to the deadline, in ticks."""
    demand: int
    """Work that must be done within it, blocking included."""
    task: int
    """Task that blocks from one tick before, or, for FIFO, that is late; -1 for none."""


class OpenTestError(Exception):
    """The test would have to look at too many points."""


def utilisation(tasks: Sequence[EngineTask]) -> Fraction:
    """Return the exact share of time that tasks need.

    >>> float(utilisation([EngineTask(11, 33, 33), EngineTask(45, 100, 100)]))
    0.7833333333333333
    """
    return sum((Fraction(task.time, task.period) for task in tasks), Fraction())


def deadline_violation(tasks: Sequence[EngineTask]) -> Violation | None:
    """Return an interval that proves that EDF without preemption misses a deadline; none if no arrivals make it miss.

    For every length L: work that arrives in the interval and is due in it, and the longest slice less one tick of work
    that is due later, must not exceed L. Necessary and sufficient for arrivals on whole ticks with any offsets.

    Raises:
        OpenTestError: there are more than MOST_POINTS deadlines to look at.

    Source: Jeffay, Stanat, Martel 1991, "On non-preemptive scheduling of periodic and sporadic tasks"; for other
        deadlines George, Rivierre, Spuri 1996, INRIA RR-2966.

    >>> camera, radar = EngineTask(11, 33, 33), EngineTask(45, 100, 100)
    >>> deadline_violation([camera, radar])
    Violation(length=33, demand=55, task=1)
    >>> deadline_violation([camera, radar._replace(slice=9)])
    """
    last = _last_deadline(tasks)
    points = _points([(task.window, task.period) for task in tasks], last)
    demand: Any = np.zeros(len(points), np.int64)
    for task in tasks:
        demand += np.maximum((points - task.window) // task.period + 1, 0) * task.time
    blocking, blocker = np.zeros(len(points), np.int64), np.full(len(points), -1)
    for place, task in enumerate(tasks):
        larger = (task.window > points) & (task.longest - 1 > blocking)
        blocking[larger], blocker[larger] = task.longest - 1, place
    over = np.flatnonzero(demand + blocking > points)
    if not len(over):
        return None
    first = over[0]
    return Violation(int(points[first]), int(demand[first] + blocking[first]), int(blocker[first]))


def _last_deadline(tasks: Sequence[EngineTask]) -> int:
    """Return the length from which the demand cannot exceed the time any more, if it did not before."""
    longest, share = max(task.window for task in tasks), utilisation(tasks)
    if share >= 1:
        return longest + 2 * lcm(*(task.period for task in tasks))
    early = sum((Fraction(task.time, task.period) * max(task.period - task.window, 0) for task in tasks), Fraction())
    return max(longest, int(early / (1 - share)) + 1)


def _points(series: Sequence[tuple[int, int]], last: int) -> Ints:
    """Return the places of arithmetic series up to `last`, in order."""
    if sum((last - first) // step + 1 for first, step in series if first <= last) > MOST_POINTS:
        raise OpenTestError
    return np.unique(np.concatenate([np.arange(first, last + 1, step, dtype=np.int64) for first, step in series]))


def queue_response(tasks: Sequence[EngineTask], place: int, jitters: Sequence[int] = ()) -> tuple[int, int]:
    """Return the longest response of a task where work is served in order of arrival, and its arrival in that case.

    Of two arrivals at the same tick the earlier task in `tasks` is served first. Without jitters the value is reached:
    all arrive from tick 0 on, the task itself at the tick that is returned.

    Args:
        jitters: most by which an arrival of each task may be late; then the value is an upper limit.

    Raises:
        OpenTestError: the engine is overloaded, or the busy period is too long.

    Source: George, Minet 1997, "A FIFO worst case analysis for a hard real-time distributed problem".

    >>> queue_response([EngineTask(2, 5, 5), EngineTask(3, 9, 9)], 0)
    (4, 1)
    """
    last = _busy_period(tasks, jitters or (0,) * len(tasks))
    queued, series = tasks[place], []
    late = jitters or (0,) * len(tasks)
    waits = [0 if jitters or other <= place else 1 for other in range(len(tasks))]
    for task, wait, jitter in zip(tasks, waits, late, strict=True):
        series += [(wait, task.period)] if not jitter else [(0, last + 1), (-jitter % task.period, task.period)]
    points = _points(series, last)
    work: Any = np.zeros(len(points), np.int64)
    for task, wait, jitter in zip(tasks, waits, late, strict=True):
        work += np.maximum((points - wait + jitter) // task.period + 1, 0) * task.time
    best = int(np.argmax(work - points))
    return max(int(work[best] - points[best]), queued.time), int(points[best])


def _busy_period(tasks: Sequence[EngineTask], jitters: Sequence[int]) -> int:
    """Return the longest time without a pause."""
    if utilisation(tasks) > 1:
        raise OpenTestError
    length = sum(task.time for task in tasks)
    for _ in range(10_000):
        longer = sum(-(-(length + jitter) // task.period) * task.time
                     for task, jitter in zip(tasks, jitters, strict=True))  # fmt: skip
        if longer == length:
            return length
        length = longer
    raise OpenTestError
