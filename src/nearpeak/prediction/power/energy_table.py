"""Predicted energy and average power of each row of a case table, with 90 % intervals."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.tables.case_table import CaseTable
from nearpeak.prediction.case_prediction import PredictionTable, group_columns
from nearpeak.prediction.models.power import board_w
from nearpeak.prediction.power.predicted_energy import energy_columns, energy_ends, has_power


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyTable:
    """Energies as columns, in the row order of the case table; NaN where no time is predicted."""

    energy_j: Any
    """Expected energies, the board's idle power included."""
    power_w: Any
    """Expected average powers."""
    energy_low_j: Any
    """Low ends of the 90 % intervals."""
    energy_high_j: Any
    """High ends of the 90 % intervals."""


def energy_table(table: CaseTable, target: Target, predictions: PredictionTable) -> EnergyTable:
    """Return the energies of cases whose times are predicted.

    Raises:
        NotModelledError: no document states the power limit of the device, or it is no GPU.

    >>> from nearpeak.ops.shared.tables.case_table import case_table
    >>> from nearpeak.prediction.case_prediction import predict_table
    >>> from nearpeak.targets import target_of
    >>> cases, board = case_table({"op": "gemm", "dtype": "bf16", "m": [64, 8192], "n": 4096, "k": 4096}), "b200_sxm"
    >>> energies = energy_table(cases, target_of(board), predict_table(cases, target_of(board)))
    >>> bool((energies.power_w <= 1000).all()), bool(energies.energy_j[1] > energies.energy_j[0])
    (True, True)
    """
    if not has_power(target):
        raise NotModelledError(f"{target.name}: no prediction of energy; GPUs that state a power limit only")
    count = table.row_count
    energy, low, high = (np.full(count, np.nan) for _ in range(3))
    for group in table.groups:
        rows = np.arange(count) if group.rows is None else np.asarray(group.rows)
        known = np.isfinite(predictions.predicted_s[rows])
        if not known.any():
            continue
        cases, predicted_rows = group_columns(group, count), rows[known]
        axes = {name: column[known] for name, column in cases.axes.items()}
        time_s = predictions.predicted_s[predicted_rows]
        parts, used = energy_columns(target, replace(cases, axes=axes), time_s)
        energy[predicted_rows] = parts.sum(1)
        time_ratio = (predictions.low_s[predicted_rows] / time_s, predictions.high_s[predicted_rows] / time_s)
        low[predicted_rows], high[predicted_rows] = energy_ends(parts, time_ratio, used, board_w(target), time_s)
    return EnergyTable(energy_j=energy, power_w=energy / predictions.predicted_s, energy_low_j=low, energy_high_j=high)
