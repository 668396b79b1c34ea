"""Reports of calibration fits and plans, as text and JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nearpeak.core.answers.calibration import Design, GroupFit, RejectedRow, Residual
from nearpeak.core.systems.stack import StackFit
from nearpeak.core.work.target import Target
from nearpeak.reports.figure_text import hung
from nearpeak.units import counted, show

RESIDUAL_COLUMNS = ("measured_s", "predicted_s", "residual_ratio", "fit_group", "set_aside")
"""What a fit adds to its table: times, predicted over measured minus 1, the group, and why a row was not used."""
_WORST = 3
"""Rows of a group that are named; --residuals has all."""


def fit_to_json(
    target: Target, fits: Sequence[GroupFit], set_aside: Sequence[RejectedRow] = (),
    refused: Mapping[str, object] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Return the fits as one JSON line.

    Args:
        set_aside: rows of the table that were not used.
        refused: why kinds of cases were not fitted.
    """
    groups = [
        {
            "group": fit.name, "start": fit.start.name, "cases": fit.case_count, "error_before": fit.before_ratio,
            "error_fitted": fit.fitted_ratio, "error_unseen": fit.unseen_ratio, "bias_unseen": fit.bias_ratio,
            "scalars": dict(fit.values), "interval": fit.entry["interval"],
            "held": [{"name": h.name, "reason": h.reason, "pinned_by": h.pinned_by} for h in fit.held],
            "worst": [
                {"row": r.row, "case": r.case.record(), "measured_s": r.measured_s, "predicted_s": r.predicted_s,
                 "residual_ratio": r.error_ratio}
                for r in fit.worst(_WORST)
            ],
        }
        for fit in fits
    ]  # fmt: skip
    return json.dumps(
        {
            "target": target.name, "groups": groups, "set_aside": [dataclasses.asdict(fit) for fit in set_aside],
            "not_fitted": {name: str(reason) for name, reason in refused.items()},
        }
    )  # fmt: skip


def fit_to_terminal(target: Target, fits: Sequence[GroupFit]) -> str:
    """Return the fits as text."""
    return "\n\n".join(_fit_text(target, fit) for fit in fits)


def _fit_text(target: Target, fit: GroupFit) -> str:
    before = {coefficient.name: coefficient.value for coefficient in fit.start.coefficients}
    held = {entry.name for entry in fit.held}
    lines = [
        f"{fit.name} on {target.title} ({target.name}): {fit.case_count} cases, started from {fit.start.name}",
        f"  mean error {_percent(fit.before_ratio)} before, {_percent(fit.fitted_ratio)} on the cases fitted, "
        f"{_percent(fit.unseen_ratio)} (bias {100 * fit.bias_ratio:+.1f} %) on cases left out",
    ]
    lines += [
        f"    {name:24} {_value(name, before[name]):>12} -> {_value(name, value):>12}"
        for name, value in fit.values.items()
        if name not in held or value != before[name]
    ]
    for entry in fit.held:
        state = "kept" if fit.values[entry.name] == before[entry.name] else "shared"
        lines += [f"    {entry.name:24} {state}: {entry.reason};", f"    {'':24} pinned down by {entry.pinned_by}"]
    lines += ["  rows that fit worst (--residuals FILE gives all)", *map(_worst_row, fit.worst(_WORST))]
    return "\n".join(hung(lines))


def _worst_row(residual: Residual) -> str:
    axes = " ".join(f"{name}={extent}" for name, extent in _free_axes(residual.case.axes))
    return (
        f"    row {residual.row}: measured {show(residual.measured_s, 's')}, "
        f"predicted {show(residual.predicted_s, 's')} "
        f"({100 * residual.error_ratio:+.0f} %), {axes}"
    )


def residual_columns(fits: Sequence[GroupFit], unused: Sequence[RejectedRow], count: int) -> dict[str, list[Any]]:
    """Return what a fit leaves at each of the `count` rows of its table, as columns; cells of other rows are None.

    Args:
        unused: rows that were not fitted on.
    """
    columns: dict[str, list[Any]] = {name: [None] * count for name in RESIDUAL_COLUMNS}
    for fit in fits:
        for residual in fit.residuals:
            cells = residual.measured_s, residual.predicted_s, residual.error_ratio, fit.name, None
            for name, cell in zip(RESIDUAL_COLUMNS, cells, strict=True):
                columns[name][residual.row - 1] = cell
    for row in unused:
        columns["set_aside"][row.row - 1] = f"{row.column} {row.text}".strip()
    return columns


def plan_to_json(target: Target, plan: Design) -> str:
    """Return the plan as one JSON line."""
    points = [
        {"case": p.case.record(), "predicted_s": p.predicted_s, "pins": p.pins, "error_after": p.error_ratio}
        for p in plan.points
    ]
    return json.dumps(
        {
            "target": target.name, "start": plan.start, "distance_count": plan.distance_count,
            "candidates": plan.candidate_count, "error_before": plan.before_ratio,
            "error_after": plan.after_ratio, "points": points,
        }
    )  # fmt: skip


def plan_to_terminal(target: Target, plan: Design) -> str:
    """Return the plan as text."""
    total = sum(point.predicted_s for point in plan.points)
    lines = [
        f"{counted(len(plan.points), 'case')} to measure on {target.title} ({target.name}), most useful first",
        f"  error of {plan.candidate_count} cases that is due to scalars: {_percent(plan.before_ratio)} now,",
        f"  with those of {plan.start}; {_percent(plan.after_ratio)} when all are measured",
        "  (the form's own error comes on top)",
        f"  one run of each takes {show(total, 's')} together",
    ]
    for point in plan.points:
        axes = " ".join(f"{name}={extent}" for name, extent in _free_axes(point.case.axes))
        lines.append(
            f"  {axes:24} {show(point.predicted_s, 's'):>9}  then {_percent(point.error_ratio):>6}  pins {point.pins}"
        )
    return "\n".join(hung(lines))


def _free_axes(axes: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(name, extent) for name, extent in axes if extent > 1 or name in ("m", "n", "k")]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def _value(name: str, value: Any) -> str:
    return show(value, "s") if name.endswith("_s") else f"{value:.4g}"


def stack_to_json(fit: StackFit) -> str:
    """Return the fit of a software stack as one JSON line."""
    return json.dumps({**dataclasses.asdict(fit.stack), **{
        name: getattr(fit, name)
        for name in ("row_count", "before_ratio", "after_ratio", "median_ratio", "fits_micro_batch")
    }})  # fmt: skip


def stack_to_terminal(fit: StackFit) -> str:
    """Return the fit of a software stack as text."""
    stack = fit.stack
    fixed = "fitted" if fit.fits_micro_batch else "as before; a second measured step would fit it"
    return (
        f"{stack.title}\n"
        f"launched kernel  {show(stack.launch_s, 's')} of host time\n"
        f"micro-batch      {show(stack.micro_batch_s, 's')} of host time ({fixed})\n"
        f"{counted(fit.row_count, 'measured step')}: mean error {fit.before_ratio:.1%} before, {fit.after_ratio:.1%} "
        f"after (median {fit.median_ratio:.1%})"
    )
