"""Launches of two builds made up: noise within and between launches, two clocks, drift; verdicts on many of them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearpeak.core.runs.launch_pairs import CANDIDATE, Launch
from nearpeak.core.runs.paired_rounds import IMPROVEMENT, INCONCLUSIVE, INVARIANT, REGRESSION
from nearpeak.judgement.launch_verdict import TURN, judged_launches

SAMPLES = 40
"""Samples of a launch."""
CLOCK_HZ = 1.5e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How the launches of one device scatter."""

    within_ratio: float
    """Standard deviation of a sample within its launch."""
    between_ratio: float
    """Standard deviation of a launch."""
    far_ratio: float = 0.0
    """Share of samples that lie 2 to 30 % higher."""
    clock_ratio: float = 0.0
    """Distance of two clocks, of which each launch has one (4 of 10 the slower)."""
    mode_ratio: float = 0.0
    """Distance of two modes inside every launch (35 of 100 samples in the slower)."""


CELLS = {
    "locked": Cell(within_ratio=0.002, between_ratio=0.0005, far_ratio=0.005),
    "typical": Cell(within_ratio=0.008, between_ratio=0.003, far_ratio=0.02),
    "runvar": Cell(within_ratio=0.008, between_ratio=0.012, far_ratio=0.02),
    "clock": Cell(within_ratio=0.004, between_ratio=0.002, clock_ratio=0.02),
    "bimodal": Cell(within_ratio=0.004, between_ratio=0.002, mode_ratio=0.03),
}
"""Source: shared design, regression.md, section 2.3."""


def launches(cell: Cell, effect_ratio: float, rounds: int, rng: np.random.Generator) -> list[Launch]:
    """Return rounds A B B A of which the candidate is slower by `effect_ratio`."""
    arms = TURN * rounds
    x = rng.normal(0, cell.between_ratio, len(arms))
    x += np.array([one == CANDIDATE for one in arms]) * math.log1p(effect_ratio)
    slow = rng.random(len(arms)) < 0.4
    samples = x[:, None] + rng.normal(0, cell.within_ratio, (len(arms), SAMPLES))
    samples += (rng.random(samples.shape) < cell.far_ratio) * rng.uniform(0.02, 0.30, samples.shape)
    samples += (rng.random(samples.shape) < 0.35) * cell.mode_ratio
    times = np.exp(np.median(samples, axis=1)) * np.where(slow, 1 + cell.clock_ratio, 1.0)
    clocks = CLOCK_HZ * np.where(slow, 1 / (1 + cell.clock_ratio), 1.0)
    return [Launch(arm=a, time_s=t, clock_hz=f) for a, t, f in zip(arms, times.tolist(), clocks.tolist(), strict=True)]


def gaussian(
    spread: float, effect: float, rounds: int, drift: NDArray[np.float64], rng: np.random.Generator
) -> list[Launch]:
    """Return rounds whose launches scatter by `spread` about the drift, without clocks."""
    arms = TURN * rounds
    x = rng.normal(0, spread, len(arms)) + drift[: len(arms)]
    x += np.array([one == CANDIDATE for one in arms]) * math.log1p(effect)
    return [Launch(arm=arm, time_s=math.exp(one)) for arm, one in zip(arms, x.tolist(), strict=True)]


def two_clocks(share: float, effect: float, count: int, rng: np.random.Generator) -> list[Launch]:
    """Return `count` launches of each arm, in turns, on two clocks 2 % apart of which `share` shows in the time."""
    arms = (TURN * count)[: 2 * count]
    clock = np.where(rng.random(len(arms)) < 0.4, -0.02, 0.0)
    x = rng.normal(0, 0.0021, len(arms)) - share * clock
    x += np.array([one == CANDIDATE for one in arms]) * math.log1p(effect)
    pairs = zip(arms, np.exp(x).tolist(), (CLOCK_HZ * np.exp(clock)).tolist(), strict=True)
    return [Launch(arm=arm, time_s=time, clock_hz=hz) for arm, time, hz in pairs]


def rounds_of(spread: float, effect: float, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the ratio of each round A B B A: half the candidate's logarithms less half the baseline's."""
    x = rng.normal(0, spread, (rounds, 4))
    return (x[:, 1] + x[:, 2] - x[:, 0] - x[:, 3]) / 2 + math.log1p(effect)


def verdict(found: list[Launch], alpha: float = 0.01) -> str:
    """Return the verdict of one look."""
    return judged_launches(found, alpha_ratio=alpha).judgement.verdict


def beyond(rounds: NDArray[np.float64], margin: float, rng: np.random.Generator) -> str:
    """Return the stricter verdict, an effect larger than the margin, by the bootstrap interval of the median round."""
    picked = rng.integers(0, rounds.size, (400, rounds.size))
    low, high = np.quantile(np.median(rounds[picked], axis=1), (0.025, 0.975))
    middle, half = (low + high) / 2, (high - low) / 2
    if abs(middle) - half > margin:
        return REGRESSION if middle > 0 else IMPROVEMENT
    return INVARIANT if abs(middle) + half <= margin else INCONCLUSIVE
