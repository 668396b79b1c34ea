"""Report of a model at every precision: time, size, energy and accuracy, each cell with where it comes from."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from nearpeak.core.answers.execution_time import EAGER, MODES
from nearpeak.precision.quantisation.precision_table import (
    PRECISION_TABLE,
    Accuracy,
    PrecisionRow,
    PrecisionTable,
    SchemeRun,
)
from nearpeak.reports.document import WHY, Block, Cell, Details, Document, Heading, Items, Table, Text, columns
from nearpeak.reports.figure_text import clean
from nearpeak.units import show

SAME_RATIO = 0.01
"""Loss of accuracy up to which two trainings count as alike."""
TOP_COUNT = 5
"""Files that a terminal shows, the fastest."""
_LONG = 16
"""Characters of a target's name beyond which a line of 80 has no room for the weights."""
PROVED, PREDICTED, MEASURED, NOT_ASKED = "proved", "predicted", "measured here", "not asked"
"""Marks of cells: a bound, an expectation, a run on this machine, nothing."""


def document_of(table: PrecisionTable, version: str = "") -> Document:
    """Return the table as a document."""
    title = _title(table)
    named = [text for text in table.verdicts if f" {text.partition(':')[0]} " in title]
    return Document(
        title=title, subject=table.runtime or "nothing was measured here", kicker="Precision",
        lead=named[0] if named and not any(row.trained for row in table.rows) else _graph_answer(table),
        blocks=tuple(_blocks(table)), foot=f"nearpeak {version}",
    )  # fmt: skip


def _title(table: PrecisionTable) -> str:
    """Return the answer in one line: the fastest precision here, or on the first target."""
    timed = [row for row in table.rows if row.best is not None]
    if table.plain_s is not None and timed:
        row = min(timed, key=lambda timed_row: (timed_row.best.measured_s if timed_row.best else None) or 0.0)
        best = row.best
        if best is not None and best.measured_s is not None:
            ratio = table.plain_s / best.measured_s
            if row.precision == "fp32":
                return f"{table.name}: nothing is faster than fp32 here, {show(best.measured_s, 's')}"
            return f"{table.name}: {row.precision} ({best.scheme}) is fastest here, {ratio:.2f}× as fast as fp32"
    if predicted := _predicted_title(table):
        return f"{table.name}: {predicted}"
    trained = [(row.precision, accuracy) for row in table.rows for accuracy in row.trained]
    accurate = [
        (precision, accuracy.trained) for precision, accuracy in trained
        if accuracy.trained in ("ptq", "qat") and (accuracy.difference_ratio or 0.0) >= -SAME_RATIO
    ]  # fmt: skip
    if accurate:
        name, way = accurate[-1]  # the narrowest, quantised in training only where that is needed
        return f"{table.name}: {name} is as right as fp32 trained as long ({way})"
    words = "nothing narrower is as right as fp32 trained as long" if trained else "at each precision"
    return f"{table.name}: {words}"


def _predicted_title(table: PrecisionTable) -> str:
    """Return which precision is expected to be the fastest on the first target; empty where nothing is predicted."""
    rows = [(row.precision, row.times[0]) for row in table.rows if row.times]
    times = [(time.predicted_s, name) for name, time in rows if time.predicted_s is not None]
    if not times:
        return ""
    time_s, name = min(times, key=lambda pair: pair[0])  # of equal ones the widest, which loses nothing
    place = f"on {table.targets[0]}, {show(time_s, 's')}"
    if _graph_answer(table):
        return f"the host sets every time {place}, eager"
    mode = next((f", {time.execution}" for _, time in rows if time.execution), "")
    return f"{'nothing is expected to beat fp32' if name == 'fp32' else f'{name} is expected fastest'} {place}{mode}"


def _graph_answer(table: PrecisionTable) -> str:
    """Return what a CUDA graph is expected to give on the first target if the host sets every time; else empty."""
    times = [(row.precision, row.times[0]) for row in table.rows if row.times]
    graphs = [(time.graph_s, name) for name, time in times if time.graph_s is not None]
    if len(graphs) < 2 or len(graphs) < sum(time.predicted_s is not None for _, time in times):
        return ""
    graph_s, name = min(graphs, key=lambda pair: pair[0])
    return f"--execution graph on {table.targets[0]}: {name} is expected fastest, {show(graph_s, 's')}"


def _blocks(table: PrecisionTable) -> Iterator[Block]:
    if any(row.trained for row in table.rows):
        yield Items(table.verdicts)
    else:
        yield _main(table)
        if any(time.execution == EAGER for row in table.rows for time in row.times):
            yield "Eager, the host submits kernel by kernel and may set the time; --execution graph leaves it out."
        yield from (
            Text(f"{row.precision}: {clean(row.reason or row.note)}", "muted") for row in table.rows
            if row.reason or row.note
        )  # fmt: skip
    yield from _schemes(table)
    yield from _trained(table)
    choice = table.layer_choice or {}
    if choice:
        counts = list(choice.values())
        words = ", ".join(f"{counts.count(name)} in {name}" for name in dict.fromkeys(counts))
        yield f"fastest choice by layer, conversions between them counted: {words}"
    details: list[Block] = [Heading("Verdicts", 3), Items(table.verdicts)] if table.verdicts else []
    if choice:
        caption = "Fastest precision of each product"
        details.append(Table(columns=columns("<product", "precision"), rows=list(choice.items()), caption=caption))
    details += [Heading("What this rests on", 3), Items(tuple(_provenance(table)))]
    yield Details(WHY, tuple(details))


def _main(table: PrecisionTable) -> Table:
    heads = ["precision"]
    for place, target in enumerate(table.targets):
        modes = {row.times[place].execution for row in table.rows if len(row.times) > place}
        mode = "".join(f"\n{name}" for name in sorted(modes - {""}))
        heads += [f"#bound_{target}_s|{target}\n{PROVED}", f"#expected_{target}_s|{PREDICTED}{mode}"]
        heads += [f"#{'+' * (len(table.targets) > 1)}energy_{target}_j|energy\n{PREDICTED}"]
    many, long = len(table.targets) > 1, sum(map(len, table.targets)) > _LONG
    heads += ["#measured_s|measured", f"#{'+' if many else ''}executed_ratio|executed so"]
    heads += [f"#{'+' if many or long else ''}weight_bytes|weights"]
    heads += ["#+activation_bytes|activations", "#accuracy"]
    rows = [_cells(table, row) for row in table.rows]
    filled = [
        place for place, head in enumerate(heads)
        if place == 0 or any(row[place].value is not None for row in rows)
    ]  # fmt: skip
    return Table(
        columns=columns(*(heads[place] for place in filled)), rows=[[row[place] for place in filled] for row in rows]
    )


def _cells(table: PrecisionTable, row: PrecisionRow) -> list[Cell]:
    """Return the cells of a row, each with its mark as a hint."""
    best = row.best
    cells = [Cell(value=row.precision)]
    for time in row.times:
        cells += [
            _cell(time.bound_s, PROVED, time.reason or row.reason),
            _cell(time.predicted_s, PREDICTED, time.reason or row.reason, _interval(time.low_s, time.high_s)),
            _cell(time.energy_j, PREDICTED, row.reason),
        ]
    cells += [_cell(None, "", row.reason)] * (3 * (len(table.targets) - len(row.times)))
    accuracy = (best.accuracy if best else None) or (row.trained[0] if row.trained else None)
    return [
        *cells,
        _cell(None if best is None else best.measured_s, MEASURED, row.reason),
        _cell(executed_ratio_of(best), MEASURED, row.reason),
        _cell(row.weight_bytes, PROVED, row.reason),
        _cell(row.activation_bytes, PROVED, row.reason),
        Cell(
            value=None if accuracy is None else accuracy.mean_ratio, text="" if accuracy is None else _right(accuracy)
        ),
    ]


def executed_ratio_of(run: SchemeRun | None) -> float | None:
    """Return the part of the products' arithmetic that a file forms in its own precision."""
    return None if run is None or run.executed is None else run.executed.share_ratio(run.precision)


def _cell(value: float | None, mark: str, reason: str = "", more: str = "") -> Cell:
    if value is None:
        return Cell(value=None, text="–" if reason else NOT_ASKED, hint=reason or NOT_ASKED)
    return Cell(value=value, hint=", ".join(filter(None, (mark, more))))


def _interval(low_s: float | None, high_s: float | None) -> str:
    return "" if low_s is None or high_s is None else f"{show(low_s, 's')} to {show(high_s, 's')}"


def _right(accuracy: Accuracy) -> str:
    """Return an accuracy with its deviation and its difference from the control.

    >>> _right(Accuracy(right_ratio=(0.97, 0.99), control_ratio=(0.99, 0.99), trained="qat"))
    '98.0 ± 1.4 %, −1.0'
    """
    spread = "" if accuracy.sd_ratio is None else f" ± {100 * accuracy.sd_ratio:.1f}"
    text = f"{100 * accuracy.mean_ratio:.1f}{spread} %"
    if accuracy.difference_ratio is None:
        return text
    points = 100 * accuracy.difference_ratio
    return f"{text}, {'−' if round(points, 1) < 0 else '+'}{abs(points):.1f}"


def _schemes(table: PrecisionTable) -> Iterator[Block]:
    """Yield the files that ran here."""
    runs = [run for row in table.rows for run in row.runs]
    if not runs:
        return
    yield Heading("Here, as files", 3)
    heads = ("scheme", "#measured_s|time", "#speed-up", "#+expected", "executed", "#loose|Q/DQ left",
             "#+file_bytes|file", "#accuracy")  # fmt: skip
    runs.sort(key=lambda run: (run.measured_s is None, run.measured_s or 0.0))
    rows = [_run_cells(run, table.plain_s) for run in runs]
    yield Table(columns=columns(*heads), rows=rows, brief_count=TOP_COUNT)
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.reason:
            reasons.setdefault(clean(run.reason), []).append(run.scheme)
    for reason, names in reasons.items():
        yield Text(f"{', '.join(names)}: {reason}", "muted")


def _run_cells(run: SchemeRun, plain_s: float | None) -> list[Cell]:
    graph, ratio = run.executed, None if run.measured_s is None or plain_s is None else plain_s / run.measured_s
    counts = "" if graph is None else ", ".join(f"{count} {name}" for name, count in graph.precisions.items())
    loose = None if graph is None else graph.quantise_count + graph.dequantise_count
    right = run.accuracy
    return [
        Cell(value=run.scheme, hint=run.text),
        Cell(value=run.measured_s, hint=MEASURED),
        Cell(value=ratio, text="–" if ratio is None else f"{ratio:.2f}×", hint=MEASURED),
        Cell(value=run.expected_s, text="–" if run.expected_s is None else show(run.expected_s, "s"), hint=PREDICTED),
        Cell(value=counts or None),
        Cell(value=loose),
        Cell(value=run.file_bytes),
        Cell(value=None if right is None else right.mean_ratio, text="" if right is None else _right(right)),
    ]


def _trained(table: PrecisionTable) -> Iterator[Block]:
    """Yield accuracies from training."""
    rows = [
        (row.precision, accuracy.trained or "trained", _right(accuracy), len(accuracy.right_ratio))
        for row in table.rows for accuracy in row.trained
    ]  # fmt: skip
    if rows:
        yield Heading("Accuracy from training", 3)
        heads = columns("precision", "how", "#accuracy|right, and points from fp32 trained as long", "#seeds")
        yield Table(columns=heads, rows=rows)


def _provenance(table: PrecisionTable) -> Iterator[str]:
    yield f"bounds, weights and activations: {PROVED}; expected times and energy: {PREDICTED}, with 90 % intervals"
    yield f"times, executed formats and accuracy of files: {MEASURED}, one thread, shortest run of files in turns"
    modes = {time.execution for row in table.rows for time in row.times if time.execution}
    yield from (f"{mode}: {MODES[mode]}" for mode in sorted(modes))
    yield "fp8 and int8: products of weights in 8 bits on both sides; int4: weights alone, products in bf16"
    yield "tf32: kernels as for fp32, with products at the rate of units for TF32; no time in TF32 was fitted"
    for row in table.rows:
        yield from (f"{row.precision} on {time.target}: {clean(time.reason)}" for time in row.times if time.reason)


def to_json(table: PrecisionTable) -> str:
    """Return the table as one JSON object, with the mark of each kind of figure."""
    marks = {
        "bound_s": PROVED, "predicted_s": PREDICTED, "energy_j": PREDICTED, "measured_s": MEASURED,
        "expected_s": PREDICTED, "weight_bytes": PROVED, "activation_bytes": PROVED, "accuracy": MEASURED,
    }  # fmt: skip
    body = asdict(table)
    for row in body["rows"]:
        for accuracy in (*row["trained"], *(run["accuracy"] for run in row["runs"] if run["accuracy"])):
            accuracy |= {
                "mean_ratio": sum(accuracy["right_ratio"]) / len(accuracy["right_ratio"]),
                "difference_ratio": difference_ratio_of(accuracy),
            }
    head = PRECISION_TABLE.head() | {"marks": marks, "missing": NOT_ASKED}
    return json.dumps(head | body, indent=2)


def difference_ratio_of(accuracy: dict[str, list[float]]) -> float | None:
    """Return the difference of a stored accuracy from its control; none without one."""
    return Accuracy(
        right_ratio=tuple(accuracy["right_ratio"]), control_ratio=tuple(accuracy["control_ratio"])
    ).difference_ratio
