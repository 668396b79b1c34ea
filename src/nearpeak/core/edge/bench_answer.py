"""Results of training runs as a report shows them: one row per cell of the matrix, over its repetitions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from nearpeak.core.edge.training_matrix import CellLog, EpochLog
from nearpeak.core.runs.energy import Energy


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTarget:
    """What the step of a model takes at least, and by prediction, on a target."""

    bound_s: float | None
    """Proved least time of one batch; none where nothing proves one."""
    predicted_s: float | None
    """Predicted time of one batch; none where nothing predicts it."""
    note: str = ""
    """Why one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One cell over its repetitions."""

    label: str
    """The case in one line."""
    mode: str
    """Power mode."""
    logs: tuple[CellLog, ...]
    """Its repetitions."""
    failure: str = ""
    """Why it has none; empty where it has."""
    step: StepTarget | None = None
    """Bound and prediction of its step; none unless asked for."""

    @property
    def first_epoch_s(self) -> float:
        """Median of first epochs; NaN without repetitions, here and below."""
        return _middle([log.epochs[0].epoch_s for log in self.logs])

    @property
    def epoch_s(self) -> float:
        """Median of later epochs, repetition by repetition."""
        return _middle([_middle([epoch.epoch_s for epoch in log.later]) for log in self.logs])

    @property
    def spread_ratio(self) -> float:
        """Largest over smallest repetition, less one."""
        values_s = [_middle([epoch.epoch_s for epoch in log.later]) for log in self.logs]
        return max(values_s) / min(values_s) - 1 if values_s else math.nan

    @property
    def samples_per_s(self) -> float:
        """Items a second in later epochs."""
        return self.logs[0].cell.item_count / self.epoch_s if self.logs else math.nan

    @property
    def epochs(self) -> tuple[EpochLog, ...]:
        """Later epochs of all repetitions."""
        return tuple(epoch for log in self.logs for epoch in log.later)

    def share_ratio(self, *names: str) -> float:
        """Return the share of later epochs that some phases take together."""
        total_s = sum(epoch.epoch_s for epoch in self.epochs)
        return sum(epoch.phases_s[name] for epoch in self.epochs for name in names) / total_s if total_s else math.nan

    @property
    def compute_step_s(self) -> float:
        """Forward, backward and optimizer of one batch in later epochs, mean."""
        if not self.logs:
            return math.nan
        cell = self.logs[0].cell
        count = -(-cell.item_count // cell.batch) * len(self.epochs)
        parts = ("forward", "backward", "optimizer")
        return sum(epoch.phases_s[name] for epoch in self.epochs for name in parts) / count

    @property
    def energies(self) -> tuple[Energy, ...]:
        """Energy of the last epoch by domain; empty where nothing meters it."""
        return self.epochs[-1].energies if self.epochs else ()

    @property
    def throttle(self) -> tuple[str, ...]:
        """Reasons for reduced clocks in any epoch."""
        return tuple(sorted({reason for log in self.logs for epoch in log.epochs for reason in epoch.throttle}))

    def record(self) -> Mapping[str, Any]:
        """Return it as plain data."""
        figures = {
            "first_epoch_s": self.first_epoch_s, "epoch_s": self.epoch_s, "samples_per_s": self.samples_per_s,
            "spread_ratio": self.spread_ratio, "wait_ratio": self.share_ratio("start", "wait", "stop"),
            "h2d_ratio": self.share_ratio("h2d"), "compute_step_s": self.compute_step_s,
            "compute_ratio": self.share_ratio("forward", "backward", "optimizer"),
        }  # fmt: skip
        known = {name: None if math.isnan(value) else value for name, value in figures.items()}
        step = self.step
        return {
            "label": self.label, "mode": self.mode, "runs": len(self.logs), "failure": self.failure, **known,
            "bound_s": None if step is None else step.bound_s,
            "predicted_s": None if step is None else step.predicted_s,
            "energy_j": {energy.domain: [energy.low_j, energy.energy_j, energy.high_j] for energy in self.energies},
            "throttle": list(self.throttle),
            "accuracy_ratio": self.epochs[-1].quantities["accuracy"] if self.epochs else None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchAnswer:
    """All cells of a store, or of a run."""

    rows: tuple[BenchRow, ...]
    """Cells, by label."""
    source: str
    """Store or folder."""
    planned_count: int = 0
    """Cells of a run that were not begun."""

    def record(self) -> Mapping[str, Any]:
        """Return it as plain data."""
        return {
            "source": self.source, "planned_count": self.planned_count, "rows": [row.record() for row in self.rows]
        }  # fmt: skip


def _middle(values: list[float]) -> float:
    return median(values) if values else math.nan
