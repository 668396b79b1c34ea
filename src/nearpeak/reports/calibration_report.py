"""Reports of calibration fits and plans, as documents and JSON."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nearpeak.core.answers.calibration import Design, GroupFit, RejectedRow
from nearpeak.core.systems.fabric import TransferFit
from nearpeak.core.systems.stack import CONFIRMED_RATIO, StackFit
from nearpeak.core.work.target import Target
from nearpeak.reports.document import Block, Document, Heading, Table, columns
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


def fit_document(target: Target, fits: Sequence[GroupFit]) -> Document:
    """Return each fitted group: errors, coefficients before and after, and the rows that it fits worst."""
    return Document(blocks=[block for fit in fits for block in _fit_blocks(target, fit)])


def _fit_blocks(target: Target, fit: GroupFit) -> Iterator[Block]:
    before = {coefficient.name: coefficient.value for coefficient in fit.start.coefficients}
    held = {entry.name for entry in fit.held}
    yield Heading(
        f"{fit.name} on {target.title} ({target.name}): {fit.case_count} cases, started from {fit.start.name}"
    )
    yield (
        f"mean error {_percent(fit.before_ratio)} before, {_percent(fit.fitted_ratio)} on the cases fitted, "
        f"{_percent(fit.unseen_ratio)} (bias {100 * fit.bias_ratio:+.1f} %) on cases left out"
    )
    changed = [
        (name, _value(name, before[name]), _value(name, value))
        for name, value in fit.values.items()
        if name not in held or value != before[name]
    ]
    if changed:
        yield Table(columns=columns("`coefficient", "#before", "#fitted"), rows=changed, indent_count=2)
    if fit.held:
        yield Table(columns=columns("`coefficient", "state", "~reason", "~pinned_by|pinned down by"), rows=[
            (entry.name, "kept" if fit.values[entry.name] == before[entry.name] else "shared", entry.reason,
             entry.pinned_by) for entry in fit.held
        ], indent_count=2)  # fmt: skip
    yield Table(
        columns=columns("#row", "#measured_s|measured", "#predicted_s|predicted", "#off", "~case"),
        rows=[
            (r.row, r.measured_s, r.predicted_s, f"{100 * r.error_ratio:+.0f} %", _axes_text(r.case.axes))
            for r in fit.worst(_WORST)
        ],
        caption="rows that fit worst (--residuals FILE gives all)", indent_count=2,
    )  # fmt: skip


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


def plan_document(target: Target, plan: Design) -> Document:
    """Return the cases to measure, with their predicted times and what each determines."""
    total = sum(point.predicted_s for point in plan.points)
    points = Table(
        columns=columns("~case", "#predicted_s|one run", "#error_ratio|error then", "~pins|determines"),
        rows=[
            (_axes_text(point.case.axes), point.predicted_s, point.error_ratio, point.pins)
            for point in plan.points
        ],
    )  # fmt: skip
    return Document(
        title=f"{counted(len(plan.points), 'case')} to measure on {target.title} ({target.name}), most useful first",
        blocks=[
            f"Error of {plan.candidate_count} cases that is due to coefficients: {_percent(plan.before_ratio)} now, "
            f"with those of {plan.start}; {_percent(plan.after_ratio)} when all are measured. The model's own error "
            f"comes on top. One run of each takes {show(total, 's')} together.",
            points,
        ],
    )  # fmt: skip


def _axes_text(axes: Sequence[tuple[str, int]]) -> str:
    """Return the extents of a case, without those of 1 that every case of its kind may have."""
    return " ".join(f"{name}={extent}" for name, extent in axes if extent > 1 or name in ("m", "n", "k"))


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


def stack_document(fit: StackFit) -> Document:
    """Return the fitted host times of a software stack."""
    stack = fit.stack
    fixed = "fitted" if fit.fits_micro_batch else "as before; a second measured step would fit it"
    rows = [
        ("launched kernel", stack.launch_s, "host time"),
        ("micro-batch", stack.micro_batch_s, f"host time ({fixed})"),
    ]
    doubt = "" if stack.is_confirmed else (
        ". No host times meet these steps, so that the stack is not confirmed and intervals stay wide: is the plan the "
        "one that ran?" if fit.after_ratio > CONFIRMED_RATIO else
        ". As many host times as steps were fitted, which confirms nothing: intervals stay wide until a further "
        "measured step agrees"
    )  # fmt: skip
    return Document(
        title=stack.title,
        blocks=[
            Table(columns=columns("per|", "#time_s|", "~kind|"), rows=rows),
            f"{counted(fit.row_count, 'measured step')}: mean error {fit.before_ratio:.1%} before, "
            f"{fit.after_ratio:.1%} after (median {fit.median_ratio:.1%}){doubt}",
        ],
    )


def fabric_document(fits: Sequence[TransferFit]) -> Document:
    """Return the fitted time of each kind of collective and number of ranks: a base, and bytes at a rate."""
    rows = [(fit.kind, fit.rank_count, fit.base_s, fit.bytes_per_s) for fit in fits]
    heads = columns("`collective", "#ranks", "#base_s|base", "#rate_bytes_per_s|and bytes at")
    return Document(blocks=[Table(columns=heads, rows=rows)])
