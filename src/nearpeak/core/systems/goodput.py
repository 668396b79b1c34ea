"""Goodput of a long training run: which shares of its time make progress that is kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

SHARES = ("productive", "checkpoint", "rework", "restart", "degraded", "idle")
"""Uses of a run's time: progress that is kept, saving it, work lost to failures, coming back, capacity that is missing
while the run goes on without broken nodes, and waiting for nodes or prices."""


class ShareRange(NamedTuple):
    """Mean of a share over simulated runs, with the values below which 10 and 90 % of them lie."""

    mean: float
    """Mean."""
    low: float
    """P10."""
    high: float
    """P90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputReport:
    """Shares of the time of a training run, simulated, with the closed forms beside them."""

    interval_s: float
    """Time between two checkpoints."""
    failure_interval_s: float
    """Mean time between failures of the whole job; the median where it is drawn from a prior."""
    failure_source: str
    """Where the failure rate comes from."""
    shares: Mapping[str, ShareRange]
    """Each of SHARES by name; the means add up to 1."""
    failure_count: ShareRange
    """Failures in a run."""
    young_interval_s: float
    """Checkpoint interval by Young's formula."""
    daly_interval_s: float
    """Checkpoint interval by Daly's formula of higher order."""
    first_order_ratio: float
    """Productive share by Young's first-order formula at `interval_s`."""
    complete_ratio: float
    """Productive share by Daly's complete formula at `interval_s`, for restarts with a spare always at hand."""
    cost_ratio: float
    """Price paid per productive hour over the price of an hour on demand."""
    run_count: int
    """Simulated runs."""
    horizon_s: float
    """Length of a run."""
    seed: int
    """Seed of the random numbers."""

    @property
    def goodput_ratio(self) -> float:
        """Mean productive share of the time."""
        return self.shares["productive"].mean
