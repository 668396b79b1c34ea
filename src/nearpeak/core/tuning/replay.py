"""Replay of a search on a recorded space: evaluations until a good configuration, run by run."""

import statistics
from dataclasses import dataclass
from typing import Any

from nearpeak.core.tuning.study import STUDIES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """One run of a search on a recorded space."""

    seed: int
    """Seed."""
    found_count: int | None
    """Configurations tried until the first good one, which it includes; none where none was found."""
    run_count: int
    """Configurations tried."""
    best_ratio: float
    """Recorded time of the best that was tried, over the least of all."""
    device_s: float
    """Time of the calls that were made."""
    full_device_s: float
    """Time of all recorded calls of the same configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStudy:
    """Runs of one search on one recorded space."""

    space: str
    """Name of the space."""
    search: str
    """Search."""
    margin_ratio: float
    """How much slower than the best a good configuration may be."""
    legal_count: int
    """Recorded configurations."""
    failed_count: int
    """Those without a time."""
    within_count: int
    """Good ones."""
    best_s: float
    """Least recorded time."""
    runs: tuple[ReplayRun, ...]
    """Runs by seed."""
    least_gain_ratio: float = 0.0
    """Expected gain of the rest below which a run stopped; 0 where runs end at the first good configuration."""
    random_speed_ratio: float = 0.0
    """Speed that as many random draws without replacement are expected to reach, over the best of all; mean of runs."""

    @property
    def median_count(self) -> float:
        """Median of the evaluations; a run that found none counts as all that it tried, and one more."""
        return statistics.median(run.found_count or run.run_count + 1 for run in self.runs)

    @property
    def found_runs(self) -> int:
        """Runs that found a good configuration."""
        return sum(run.found_count is not None for run in self.runs)

    @property
    def speed_ratio(self) -> float:
        """Speed of the best that a run found over that of the best of all; mean of runs."""
        return statistics.fmean(1 / run.best_ratio for run in self.runs)

    @property
    def device_ratio(self) -> float:
        """Median over runs of the time of the calls made over that of all recorded calls."""
        return statistics.median(run.device_s / run.full_device_s for run in self.runs if run.full_device_s)

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain: dict[str, Any] = STUDIES.plain(self)
        return plain | {
            "median_count": self.median_count, "found_runs": self.found_runs, "device_ratio": self.device_ratio,
            "speed_ratio": self.speed_ratio,
        }  # fmt: skip
