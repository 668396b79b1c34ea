"""Errors of predictions against measurements, and of the plain roofline beside them."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from benchmarks.accuracy.family import Block, Family, folds
from benchmarks.accuracy.spread import is_elsewhere
from nearpeak.bounds.bound_table import bound_table
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.intervals import shortest
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

HELD_OUT = 3
"""Fold of sites that neither scalars nor intervals have seen."""
LONG_S = 50e-6
"""Kernels longer than this are scored once more on their own."""
TRIED_COUNT = 64
"""Rows drawn from a block that are refused one by one before all of it is."""


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
    left_out: Mapping[str, int]
    """Rows of the corpus that are no case of the block, by reason."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Measured and predicted times of the rows of one block that a score is of."""

    name: str
    """Source, device and format."""
    protocol: str
    """How the rows were kept from the fit."""
    measured_s: Any
    """Measured times."""
    predicted_s: Any
    """Predicted times."""
    low_s: Any
    """Low ends of the 90 % intervals."""
    high_s: Any
    """High ends of the 90 % intervals."""
    bound_s: Any
    """Times that nothing can beat, as predictions state them."""
    classical_s: Any
    """Times that no classical algorithm can beat."""
    any_s: Any
    """Times that no bilinear algorithm can beat, Winograd's, FFT and Strassen's among them."""
    charged_s: Any
    """Times that no classical algorithm can beat which writes all outputs to memory."""
    roofline_s: Any
    """Times of the plain roofline at documented rates."""
    clocked_s: Any
    """The same with all rates raised to the highest permitted clock: at most what a roofline at that clock says."""
    plain_s: Any
    """Predicted times without the bounded correction."""
    decided: Any
    """Whether the bound, not the form, gave the time."""
    cold: Any
    """Whether the bound stands for more bytes than the last cache holds: inputs cannot have lain in it."""
    left_out: Mapping[str, int]
    """Rows of the corpus that are no case of the block, by reason."""


def held_out(family: Family, block: Block, *, every_row: bool = False) -> Rows | None:
    """Return the predictions of the rows of a block that no fit has seen; none without rows."""
    if len(block.measured_s) == 0:
        return None
    try:
        return _held_out(family, block, every_row=every_row)
    except NearpeakError as error:
        part = block.part(_predicted(block, error))
    print(
        f"{family.name}: {block.name}: {len(block.measured_s) - len(part.measured_s)} shapes left out, that nothing "
        "predicts",
        file=sys.stderr,
    )
    return _held_out(family, part, every_row=every_row)


def _predicted(block: Block, error: NearpeakError) -> Any:
    """Return the rows of a block that can be predicted, where together they cannot.

    Raises:
        NearpeakError: `error`, where none of the rows that are tried alone can.
    """
    pending, kept, refused = [np.random.default_rng(0).permutation(len(block.measured_s))], [], 0
    while pending:
        rows = pending.pop()
        try:
            rows_of(block, rows, "device")
            kept.append(rows)
        except NearpeakError:
            refused += len(rows) == 1
            if refused >= TRIED_COUNT and not kept:
                raise error from None
            pending += [half for half in np.array_split(rows, 2) if len(rows) > 1]
    if not kept:
        raise error
    return np.sort(np.concatenate(kept))


def _held_out(family: Family, block: Block, *, every_row: bool) -> Rows | None:
    if every_row or not is_fitted(family, block):
        elsewhere = is_elsewhere(family, block)
        rows = np.arange(len(block.measured_s))
        return rows_of(block, rows, "source" if elsewhere else "device", block.source if elsewhere else "")
    return rows_of(block, np.flatnonzero(folds(block) == HELD_OUT), "sites")


def is_fitted(family: Family, block: Block) -> bool:
    """Return whether rows of this name are behind the scalars that answer for them, by the file of the scalars.

    Names alone do not tell: rows of a device of the same project, for which no file was written, are all unseen.
    """
    if not family.is_named(block):
        return False
    used = calibration_for(target_of(block.device), family.model, block.columns(np.arange(1)))
    return used.distance_count == 0 and used.name.partition(" ")[0].replace("@", ":") == block.device


def rows_of(block: Block, rows: Any, protocol: str, measured_by: str = "") -> Rows | None:
    """Return the predictions of the chosen rows of a block with the coefficients that ship; none without rows.

    Args:
        measured_by: the block's source, where it is not the one behind the scalars.
    """
    if len(rows) == 0:
        return None
    found = [(count, _columns(one, rows, measured_by)) for count, one in block.kernels or ((1, block),)]
    columns = {name: sum(count * each[name] for count, each in found) for name in found[0][1]}
    for name in ("decided", "cold"):
        columns[name] = np.all([each[name] for _, each in found], axis=0)
    return Rows(
        name=block.name, protocol=protocol, measured_s=block.measured_s[rows], left_out=block.left_out, **columns
    )


def _columns(block: Block, rows: Any, measured_by: str) -> dict[str, Any]:
    """Return the predictions and bounds of cases by the field of `Rows` that they, or their sums, stand under."""
    target, table = target_of(block.device), block.table(rows)
    found = predict_table(table, target, replace(block.setting_of(rows), measured_by=measured_by))
    policies = (Policy(), Policy(algorithm="any"), Policy(output_credit=False))
    classical, fast, charged = (bound_table(table, target, one) for one in policies)
    return {
        "predicted_s": found.predicted_s, "low_s": found.low_s, "high_s": found.high_s, "bound_s": found.bound_s,
        "classical_s": classical.bound_s, "any_s": fast.bound_s, "charged_s": charged.bound_s,
        "roofline_s": classical.roofline_s, "clocked_s": classical.roofline_s * _clock_ratio(target),
        "plain_s": _uncorrected(block, rows), "decided": found.bound_decides,
        "cold": _is_cold(target, classical.bound_s),
    }  # fmt: skip


def joined(parts: Sequence[Rows], name: str) -> Rows:
    """Return the rows of several blocks as one."""
    columns = {
        one.name: np.concatenate([getattr(part, one.name) for part in parts])
        for one in fields(Rows)
        if one.name not in ("name", "protocol", "left_out")
    }
    return Rows(name=name, protocol=parts[0].protocol, left_out={}, **columns)


def score(rows: Rows) -> Score:
    """Return the score of predictions."""
    measured, predicted = rows.measured_s, rows.predicted_s
    long = measured > LONG_S
    whole, roofline, plain = (error_of(one, measured) for one in (predicted, rows.roofline_s, rows.plain_s))
    assert whole is not None
    assert roofline is not None
    assert plain is not None
    return Score(
        name=rows.name, protocol=rows.protocol, all=whole, long=error_of(predicted[long], measured[long]),
        plain_ratio=plain.mean_ratio, roofline_ratio=roofline.mean_ratio,
        covered_ratio=float(((rows.low_s <= measured) & (measured <= rows.high_s)).mean()),
        half_width_ratio=float(np.median((rows.high_s - rows.low_s) / 2 / predicted)),
        least_width_ratio=_least_width(measured / predicted),
        decided_ratio=float(rows.decided.mean()),
        beaten_ratio=float(((measured < rows.bound_s) & rows.cold).mean()),
        left_out=rows.left_out,
    )  # fmt: skip


def _least_width(ratios: Any) -> float:
    low, high = shortest(ratios, math.ceil(0.9 * len(ratios)))
    return (high - low) / 2


def _clock_ratio(target: Target) -> float:
    """Return the least share that a documented rate is of the rate at the highest permitted clock."""
    return min(peak.flop_per_s / target.highest_flop_per_s(unit) for unit, peak in target.peaks.items())


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
