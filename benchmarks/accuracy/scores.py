"""Errors of predictions against measurements, and of the plain roofline beside them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.accuracy.family import Block
from nearpeak.core.bound import Policy
from nearpeak.core.target import Target
from nearpeak.predict.intervals import shortest
from nearpeak.predict.prediction import predict_table
from nearpeak.targets import target_of
from nearpeak.theory.table import bound_table

LONG_S = 50e-6
"""Kernels longer than this are scored once more on their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Statistics of predicted over measured minus 1, as ratios."""

    row_count: int
    """Rows."""
    mean_ratio: float
    """Mean absolute error."""
    median_ratio: float
    """Median absolute error."""
    p90_ratio: float
    """90th percentile of the absolute error."""
    bias_ratio: float
    """Mean signed error: positive when predictions are too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one block fared."""

    name: str
    """Source, device and format."""
    protocol: str
    """How the rows were kept from the fit."""
    all: Error
    """Every row."""
    long: Error | None
    """Rows above 50 us; none when there is none."""
    plain_ratio: float
    """Mean absolute error of the scalars alone, without the bounded correction."""
    roofline_ratio: float
    """Mean absolute error of the plain roofline at documented rates."""
    covered_ratio: float
    """Share of rows inside the 90 % interval."""
    half_width_ratio: float
    """Median half width of the interval over the predicted time."""
    least_width_ratio: float
    """Half width of the shortest interval that holds 90 % of these very rows, known afterwards, the same for all."""
    decided_ratio: float
    """Share of predictions that the bound gave, not the form."""
    beaten_ratio: float
    """Share of rows faster than their bound, of those whose bound is more than the last cache can hold from memory."""
    hot_count: int
    """Shapes left out as their inputs lay in cache."""


def error_of(predicted: Any, measured: Any) -> Error | None:
    """Return the statistics; none without rows.

    >>> found = error_of(np.array([1.1, 0.9]), np.array([1.0, 1.0]))
    >>> round(found.mean_ratio, 3), round(abs(found.bias_ratio), 3)
    (0.1, 0.0)
    """
    if len(measured) == 0:
        return None
    deviation = predicted / measured - 1
    size = np.abs(deviation)
    return Error(
        row_count=len(size), mean_ratio=float(size.mean()), median_ratio=float(np.median(size)),
        p90_ratio=float(np.quantile(size, 0.9)), bias_ratio=float(deviation.mean()),
    )  # fmt: skip


def score(block: Block, rows: Any, protocol: str, measured_by: str = "") -> Score | None:
    """Return the score of the chosen rows of a block with the coefficients that ship; none without rows.

    Args:
        measured_by: the block's source, where it is not the one behind the scalars.
    """
    measured = block.measured_s[rows]
    target, table = target_of(block.device), block.table(rows)
    found = predict_table(table, target, replace(block.setting_of(rows), measured_by=measured_by))
    whole = error_of(found.predicted_s, measured)
    if whole is None:
        return None
    long = measured > LONG_S
    roofline = error_of(bound_table(table, target, Policy()).roofline_s, measured)
    plain = error_of(_uncorrected(block, rows), measured)
    assert roofline is not None
    assert plain is not None
    return Score(
        name=block.name, protocol=protocol, all=whole, long=error_of(found.predicted_s[long], measured[long]),
        plain_ratio=plain.mean_ratio, roofline_ratio=roofline.mean_ratio,
        covered_ratio=float(((found.low_s <= measured) & (measured <= found.high_s)).mean()),
        half_width_ratio=float(np.median((found.high_s - found.low_s) / 2 / found.predicted_s)),
        least_width_ratio=_least_width(measured / found.predicted_s),
        decided_ratio=float(found.bound_decides.mean()),
        beaten_ratio=float(((measured < found.bound_s) & _is_cold(target, found.bound_s)).mean()),
        hot_count=block.hot_count,
    )  # fmt: skip


def _least_width(ratios: Any) -> float:
    low, high = shortest(ratios, math.ceil(0.9 * len(ratios)))
    return (high - low) / 2


def _is_cold(target: Target, bound_s: Any) -> Any:
    """Return which bounds stand for more bytes than the last cache holds: inputs cannot have lain in it."""
    rate, capacity = target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes
    return np.ones(len(bound_s), dtype=bool) if rate is None or capacity is None else bound_s * rate > capacity


def _uncorrected(block: Block, rows: Any) -> Any:
    """Return the predicted times without the bounded correction."""
    setting = replace(block.setting_of(rows), is_corrected=False)
    return predict_table(block.table(rows), target_of(block.device), setting).predicted_s


def shown(found: Error | None) -> str:
    """Return the statistics in percent, a dash without rows."""
    if found is None:
        return "–"
    sizes = (found.mean_ratio, found.median_ratio, found.p90_ratio)
    return " / ".join(f"{100 * one:.1f}" for one in sizes) + f" / {100 * found.bias_ratio:+.1f}"


def summary(scored: Mapping[str, Sequence[Score]]) -> str:
    """Return a table of all rows by family and how they were held out: intervals and bounds over many blocks."""
    lines = [
        "| family | held out | rows | mean error | covered | half width over error | at best "
        "| bound decides | beats bound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for protocol in ("sites", "device", "source"):
        groups = {name: [one for one in found if one.protocol == protocol] for name, found in scored.items()}
        everything = [one for found in groups.values() for one in found]
        for name, found in (*groups.items(), ("all", everything)):
            if found:
                lines.append(_sum_line(name, protocol, found))
    return "\n".join(lines) + "\n"


def _sum_line(name: str, protocol: str, found: Sequence[Score]) -> str:
    counts = np.array([one.all.row_count for one in found], dtype=float)

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=counts))

    cells = (
        name, protocol, f"{counts.sum():.0f}", f"{100 * mean([one.all.mean_ratio for one in found]):.1f} %",
        f"{100 * mean([one.covered_ratio for one in found]):.1f} %",
        f"{mean([one.half_width_ratio / one.all.mean_ratio for one in found]):.2f}",
        f"{mean([one.least_width_ratio / one.all.mean_ratio for one in found]):.2f}",
        f"{100 * mean([one.decided_ratio for one in found]):.2f} %",
        f"{100 * mean([one.beaten_ratio for one in found]):.2f} %",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
