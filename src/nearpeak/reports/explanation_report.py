"""Report of the difference of two predictions: parts side by side, and the device figures that differ."""

import json
from collections.abc import Mapping

from nearpeak.core.answers.explanation import Explanation
from nearpeak.core.answers.prediction import Prediction
from nearpeak.reports.document import Block, Document, Items, Table, columns
from nearpeak.reports.part_names import PART_WORDS
from nearpeak.units import show

LIBRARY = "library"
"""Part that was fitted to the residuals of the kernel model."""
LEAST_SHARE = 0.005
"""Parts that differ by less than this share of the whole difference are summed into one line in text."""


def to_json(explanation: Explanation) -> str:
    """Return the explanation as one JSON line."""
    first, second = explanation.predictions
    return json.dumps(
        {
            "cases": [case.record() for case in explanation.cases],
            "targets": [target.name for target in explanation.targets],
            "predicted_s": [first.time_s, second.time_s], "difference_s": second.time_s - first.time_s,
            "parts_s": {name: list(pair) for name, pair in explanation.parts_s.items()},
            "device_figures": {name: list(figure[:2]) for name, figure in explanation.figures.items()},
            "calibrations": [first.calibration.name, second.calibration.name],
            "distance_counts": [first.distance_count, second.distance_count],
        }
    )  # fmt: skip


def document_of(explanation: Explanation, labels: tuple[str, str]) -> Document:
    """Return the explanation as a document; `labels` name the two cases."""
    (first, second), targets, parts = explanation.predictions, explanation.targets, explanation.parts_s
    ratio, difference = second.time_s / first.time_s, second.time_s - first.time_s
    blocks: list[Block] = [
        f"A  {labels[0]} on {targets[0].name}", f"B  {labels[1]} on {targets[1].name}",
        f"B takes {ratio:.3g} times as long: {show(first.time_s, 's')} against {show(second.time_s, 's')}, "
        f"{_signed(difference)}",
    ]  # fmt: skip
    if targets[0] != targets[1] and not (first.high_s < second.low_s or second.high_s < first.low_s):
        blocks.append("their 90 % intervals overlap: the difference may be less than what predictions miss")
    blocks += _correction_warning(first, second)
    blocks.append(_parts_table(parts, difference))
    blocks.append(Items(tuple(
        f"{name}: {PART_WORDS[name]}" for name in _telling(parts, difference) if name in PART_WORDS
    )))  # fmt: skip
    if explanation.figures:
        rows = [(name, show(left, unit), show(right, unit), f"{right / left:.3g}")
                for name, (left, right, unit) in explanation.figures.items()]  # fmt: skip
        blocks.append(Table(columns=columns("device", "#A", "#B", "#B / A"), rows=rows))
    if first.calibration.name != second.calibration.name:
        blocks.append(f"coefficients of A: {first.calibration.name}; of B: {second.calibration.name}")
    return Document(blocks=blocks, kicker="Why two predictions differ")


def _correction_warning(first: Prediction, second: Prediction) -> list[str]:
    """Return a warning where only the fitted correction makes the longer of the two predictions the longer one."""
    model_a_s, model_b_s = (each.time_s - each.waterfall_s.get(LIBRARY, 0.0) for each in (first, second))
    if (model_b_s - model_a_s) * (second.time_s - first.time_s) >= 0:
        return []
    return [
        f"without the part {LIBRARY} B would take {model_b_s / model_a_s:.3g} times as long: which of them takes "
        "longer follows from measurements of similar cases, not from the kernel model, and is less sure than either "
        "time"
    ]


def _telling(parts: Mapping[str, tuple[float, float]], difference: float) -> list[str]:
    """Return the parts that make up the difference, each by a share of it that is worth a line."""
    return [name for name, (left, right) in parts.items() if abs(right - left) > LEAST_SHARE * abs(difference)]


def _parts_table(parts: Mapping[str, tuple[float, float]], difference: float) -> Table:
    rows, telling = [], _telling(parts, difference)
    for name in telling:
        left, right = parts[name]
        rows.append((name, left, right, _signed(right - left)))
    rest = [pair for name, pair in parts.items() if name not in telling]
    if rest:
        left, right = (sum(times) for times in zip(*rest, strict=True))
        rows.append((f"{len(rest)} alike", left, right, _signed(right - left)))
    return Table(columns=columns("part", "#a_s|A", "#b_s|B", "#B - A"), rows=rows)


def _signed(time_s: float) -> str:
    return f"{'+' if time_s >= 0 else '-'}{show(abs(time_s), 's')}"
