"""Verdict sentences of the precision table: whether a precision pays, here and on each target."""

from collections.abc import Iterator

from nearpeak.precision.quantisation.precision_table import (
    LEAST_CHANGE_RATIO,
    Accuracy,
    PrecisionRow,
    PrecisionTable,
    SchemeRun,
    TargetTime,
)
from nearpeak.units import counted


def verdicts_of(table: PrecisionTable) -> tuple[str, ...]:
    """Return a sentence for each precision that was measured here or predicted."""
    base = next((row for row in table.rows if row.precision == "fp32"), None)
    if base is None:
        return ()
    return tuple(
        f"{row.precision}: {'; '.join(parts)}"
        for row in table.rows
        if row is not base and (parts := list(_parts(row, base, table.plain_s)))
    )


_SAME_POINTS = 1.0
"""Points of accuracy up to which two trainings count as alike."""


def accuracy_verdicts_of(table: PrecisionTable) -> tuple[str, ...]:
    """Return a sentence for each precision that was quantised: what it loses against fp32 trained as long."""
    sentences = []
    for row in table.rows:
        by_way = {accuracy.trained: accuracy for accuracy in row.trained if accuracy.trained in ("ptq", "qat")}
        parts = [f"{way} {_lost(accuracy)}" for way, accuracy in by_way.items()]
        if len(by_way) == 2:
            gain = 100 * (by_way["qat"].mean_ratio - by_way["ptq"].mean_ratio)
            worth = "worth training" if gain > _SAME_POINTS else "training gains nothing to speak of"
            parts.append(f"{worth} ({_signed(gain)} points)")
        if parts:
            sentences.append(f"{row.precision}: {'; '.join(parts)}")
    return tuple(sentences)


def _lost(accuracy: Accuracy) -> str:
    points = 100 * (accuracy.difference_ratio or 0.0)
    return "as right as fp32" if abs(points) <= _SAME_POINTS else f"{_signed(points)} points from fp32 trained as long"


def _signed(points: float) -> str:
    """Return a difference with its sign.

    >>> _signed(-1.25), _signed(4.8)
    ('−1.2', '+4.8')
    """
    return f"{'−' if points < 0 else '+'}{abs(points):.1f}"


def _parts(row: PrecisionRow, base: PrecisionRow, plain_s: float | None) -> Iterator[str]:
    best = row.best
    if best is not None and best.measured_s is not None and plain_s is not None:
        yield f"{_ratio(plain_s / best.measured_s)} here ({best.scheme}), {_executed(best)}"
        slower = [run for run in row.runs if run is not best and run.measured_s is not None]
        yield from (f"{run.scheme} {plain_s / run.measured_s:.2f}×" for run in slower[:1] if run.measured_s is not None)
    elif row.runs and all(run.reason for run in row.runs):
        yield f"not run here: {row.runs[0].reason}"
    for time, before in zip(row.times, base.times, strict=False):  # none where the precision has no step
        yield from _expected_words(time, before)


def _ratio(ratio: float) -> str:
    """Return a speed-up in words that say which way it goes.

    >>> _ratio(1.62), _ratio(0.85), _ratio(1.02)
    ('1.62× as fast', '0.85× as fast (slower)', '1.02× as fast (no difference)')
    """
    if abs(ratio - 1) < LEAST_CHANGE_RATIO / 2:
        return f"{ratio:.2f}× as fast (no difference)"
    return f"{ratio:.2f}× as fast{' (slower)' if ratio < 1 else ''}"


def _executed(run: SchemeRun) -> str:
    """Return how many products run in the precision that was asked for, and what is left beside them."""
    graph = run.executed
    if graph is None:
        return "executed formats not known"
    count, total = graph.precisions.get(run.precision, 0), len(graph.products)
    packed = sum(product.weight_bits_count is not None for product in graph.products)
    loose = graph.quantise_count + graph.dequantise_count
    words = f"{count} of {counted(total, 'product')} {run.precision}"
    if not count and packed:
        words = f"{packed} of {counted(total, 'product')} with narrow weights, formed in fp32"
    return f"{words}, {counted(loose, 'quantisation')} left" if loose else words


def _expected_words(time: TargetTime, before: TargetTime) -> Iterator[str]:
    """Yield the expected speed-up on a target over fp32 there, with the interval of the quotient."""
    if time.predicted_s is None or before.predicted_s is None:
        if time.bound_s is not None and before.bound_s is not None:
            yield f"on {time.target} at most {before.bound_s / time.bound_s:.2f}× by the bounds, nothing predicted"
        return
    yield f"on {time.target} predicted {_ratio(before.predicted_s / time.predicted_s)}, not measured"
