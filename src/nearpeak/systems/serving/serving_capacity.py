"""Capacity of a service: the highest rate of requests whose latencies stay within limits, with its interval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.systems.serving.latency_metrics import Limits, Window, quantile, request_metric
from nearpeak.systems.serving.policies import POLICIES
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.units import show

STUDENT_90 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
    1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
"""Student's t at 95 % for 1 to 30 degrees of freedom: half of a two-sided 90 % interval."""
FULL_RATIO = 0.97
"""Share of the KV blocks from which the cache counts as full: one more sequence seldom fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate within limits; 0 where no rate meets them."""

    rate_per_s: float
    """Requests per second, to three digits: the requests of all seeds together meet each limit at this very rate."""
    low_per_s: float
    """Lower end of its 90 % interval, by the rates that single seeds reach; the rate itself with one seed."""
    high_per_s: float
    """Upper end."""
    tried_per_s: float
    """Rate that latencies and runs are those of: the same, or the lowest rate tried where none meets the limits."""
    outcomes: tuple[Outcome, ...]
    """Runs at that rate, one for each seed."""
    reached_s: Mapping[str, float]
    """The quantile of each limited latency in seconds at that rate, over the requests of all seeds."""
    limits: Limits
    """Limits."""
    share_ratio: float
    """Share of requests that must meet each limit."""
    limiter: str
    """What ends it, in words."""

    def line(self) -> str:
        """Return the answer as a line."""
        words = ", ".join(
            f"{name} p{self.share_ratio * 100:g} {show(self.reached_s[name], 's')} of {show(limit, 's')}"
            for name, limit in self.limits.items()
        )
        if not self.rate_per_s:
            return f"no rate meets the limits: at best {words}; limited by {self.limiter}"
        ends = f"[{self.low_per_s:.3g}, {self.high_per_s:.3g}]"
        return f"{self.rate_per_s:.3g} requests/s {ends} at {words}; limited by {self.limiter}"


class _Trial(NamedTuple):
    """Runs at one rate."""

    rate_per_s: float
    outcomes: tuple[Outcome, ...]
    tails_s: Mapping[str, float]
    """Quantiles over the requests of all seeds."""
    is_within: bool
    passes: tuple[bool, ...]
    """Of each seed, whether its own requests meet the limits."""


def capacity(
    run: Callable[[float, int], Outcome], limits: Limits, *, low_per_s: float, high_per_s: float,
    seeds: Sequence[int], share: float = 0.99, tolerance_ratio: float = 0.01,
    window: Callable[[Outcome], Window] | None = None, bound: Callable[[Outcome], str] | None = None,
) -> Capacity:  # fmt: skip
    """Return the highest rate at which a share of the requests of all seeds meets each limit, by bisection.

    Rates are of three digits, so that a rate as it is printed is the one that was run.

    Args:
        run: serves a load of a rate and a seed; the same seed must give the same requests at every rate (common random
            numbers), and the run must record its steps, so that the limiter can be named.
        low_per_s: rate from which the search starts; if it fails, no rate is found.
        high_per_s: highest rate tried; a capacity that reaches it says so.
        tolerance_ratio: width at which a bisection ends, over its rate.
        window: part of a run that counts; all of it by default.
        bound: names what holds requests up in a run; `bound_resource` by default.
    """
    if not limits.items() or not seeds or not 0 < low_per_s < high_per_s:
        raise SpecError(
            f"capacity: needs a limit, a seed, and rates 0 < low < high; got {len(limits.items())} limits, "
            f"{len(seeds)} seeds, {low_per_s:g} and {high_per_s:g} per second"
        )

    def trial(rate_per_s: float, drawn: Sequence[int] = seeds) -> _Trial:
        return _trial(rate_per_s, [run(rate_per_s, seed) for seed in drawn], limits, share, window)

    def alone(seed: int) -> Callable[[float], bool]:
        return lambda rate_per_s: trial(rate_per_s, [seed]).is_within

    best = trial(three_digits(low_per_s))
    if not best.is_within:
        return Capacity(
            rate_per_s=0.0, low_per_s=0.0, high_per_s=0.0, tried_per_s=best.rate_per_s, outcomes=best.outcomes,
            reached_s=best.tails_s, limits=limits, share_ratio=share, limiter=_limiter(best, limits, bound),
        )  # fmt: skip
    passes, failed, high = {best.rate_per_s: best.passes}, None, high_per_s
    while (middle := rate_between(best.rate_per_s, high, tolerance_ratio)) is not None:
        tried = trial(middle)
        passes[middle] = tried.passes
        if tried.is_within:
            best = tried
        else:
            failed, high = tried, middle
    ratio = _half_ratio(passes, [alone(seed) for seed in seeds], tolerance_ratio)
    return Capacity(
        rate_per_s=best.rate_per_s, low_per_s=best.rate_per_s * max(1 - ratio, 0.0),
        high_per_s=best.rate_per_s * (1 + ratio), tried_per_s=best.rate_per_s, outcomes=best.outcomes,
        reached_s=best.tails_s, limits=limits, share_ratio=share,
        limiter=_limiter(failed, limits, bound) if failed else f"the highest rate tried, {high_per_s:g}/s",
    )  # fmt: skip


def three_digits(rate_per_s: float) -> float:
    """Return a rate as it is printed.

    >>> three_digits(14.26)
    14.3
    """
    return float(f"{rate_per_s:.3g}")


def rate_between(low: float, high: float, tolerance_ratio: float) -> float | None:
    """Return a rate of three digits between two rates; none where they are as near as is wanted or can be.

    >>> rate_between(1.0, 2.0, 0.01), rate_between(1.0, 1.01, 1e-6)
    (1.41, None)
    """
    middle = three_digits((low * high) ** 0.5)
    return middle if high - low > tolerance_ratio * low and low < middle < high else None


def _trial(
    rate_per_s: float, outcomes: Sequence[Outcome], limits: Limits, share: float,
    window: Callable[[Outcome], Window] | None,
) -> _Trial:  # fmt: skip
    """Return what runs of one rate reach, together and each by itself."""

    def tail(values: Floats) -> float:
        return quantile(values, share) if len(values) else 0.0

    windows = [window(outcome) if window else None for outcome in outcomes]
    columns = {
        name: [request_metric(outcome, name, part) for outcome, part in zip(outcomes, windows, strict=True)]
        for name, _ in limits.items()
    }
    tails = {name: tail(np.concatenate(parts)) for name, parts in columns.items()}
    return _Trial(
        rate_per_s, tuple(outcomes), tails, all(tails[name] <= limit for name, limit in limits.items()),
        tuple(all(tail(columns[name][place]) <= limit for name, limit in limits.items())
              for place in range(len(outcomes))),
    )  # fmt: skip


def _seed_rate(passes: dict[float, bool], holds: Callable[[float], bool], tolerance_ratio: float) -> float:
    """Return the rate up to which one seed meets the limits, from rates that are known and some between them."""
    high = min((rate for rate, is_within in passes.items() if not is_within), default=max(passes))
    low = max((rate for rate, is_within in passes.items() if is_within and rate <= high), default=min(passes))
    while (middle := rate_between(low, high, tolerance_ratio)) is not None:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _half_ratio(
    passes: Mapping[float, tuple[bool, ...]], holds: Sequence[Callable[[float], bool]], tolerance_ratio: float
) -> float:
    """Return half of the 90 % interval of the mean rate of seeds over that mean; 0 for one seed, which tells none."""
    if len(holds) < 2:
        return 0.0
    rates = [
        _seed_rate({rate: each[place] for rate, each in passes.items()}, is_held, tolerance_ratio)
        for place, is_held in enumerate(holds)
    ]
    mean, half = mean_interval(np.array(rates))
    return half / mean


def _limiter(trial: _Trial, limits: Limits, bound: Callable[[Outcome], str] | None) -> str:
    metrics = [name for name, limit in limits.items() if trial.tails_s[name] > limit]
    return f"{' and '.join(metrics)}, by {(bound or bound_resource)(trial.outcomes[0])}"


def bound_resource(outcome: Outcome) -> str:
    """Return what holds requests up: KV memory, the limit of sequences, adapters of a step, or the time of steps.

    It is what most of the time in steps with waiting requests is spent at; where none wait, the time of steps.

    Raises:
        SpecError: the run recorded no steps.
    """
    steps = outcome.steps
    if steps is None:
        raise SpecError("limiter: needs the steps of the run: record them (is_logged)")
    policy, ranks = POLICIES[outcome.engine.policy], outcome.engine.rank_count
    limit = (outcome.engine.sequence_count or policy.sequence_count) * ranks
    waits, crowded = steps.waiting_count > 0, steps.running_count >= limit
    full = steps.block_count >= FULL_RATIO * outcome.engine.kv_block_count * ranks
    idle = (steps.prompt_count == 0) & ~crowded & ~full  # nothing but blocks or adapters keeps others waiting
    if policy.is_whole_batch:
        idle &= False
    waiting_s = float(steps.duration_s[waits].sum())
    reasons = {"KV memory": full, "the limit of sequences": crowded}
    name = "the adapters of a step" if outcome.engine.adapter_count else "KV memory"
    reasons[name] = reasons.get(name, idle) | idle
    spent = {name: float(steps.duration_s[waits & rows].sum()) for name, rows in reasons.items()}
    largest = max(spent, key=lambda name: spent[name])
    if waiting_s <= 0.01 * float(steps.duration_s.sum()) or spent[largest] < waiting_s / 2:
        return "the time of steps"
    return largest


def mean_interval(values: Floats) -> tuple[float, float]:
    """Return the mean of independent values, and half of its 90 % interval by Student's t; infinite for one value.

    >>> mean_interval(np.array([1.0, 3.0]))[0], round(mean_interval(np.array([1.0, 3.0]))[1], 3)
    (2.0, 6.314)
    """
    if len(values) < 2:
        return float(values[0]), float("inf")
    student = STUDENT_90[min(len(values) - 1, len(STUDENT_90)) - 1]
    return float(values.mean()), float(student * values.std(ddof=1) / len(values) ** 0.5)
