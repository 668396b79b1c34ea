"""Command `nearpeak precision`: a model at each number format, and the format in which it really runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import takes_capture_options
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.reports.document import Document

_MODEL = typer.Argument(
    help="Float ONNX file, or whatever 'nearpeak analyze' takes. With --executed: an ONNX file, an ONNX Runtime profile, "
    "or trtexec's layers."
)
_EXECUTED = typer.Option(
    False, "--executed", help="Only say in which formats the products of a file really run, and what passes are left."
)
_PRECISIONS = typer.Option("", "--precisions", help="Rows beside fp32, e.g. bf16,int8; all by default.")
_SCHEMES = typer.Option(
    "", "--schemes", help="Quantised files that run here: s8s8, u8s8, dynamic, w8, w4, …; none for none; all by default."
)
_DATA = typer.Option(None, "--data", help="Examples (.npz, an array per input) that calibrate; random without.")
_LABELS = typer.Option(None, "--labels", help="Right class of each example (.npy), for the accuracy of each file.")


@takes_capture_options("batch", "sequence", "guess_sizes", "shapes", "input_values")
def precision(
    model: str = _MODEL,
    target: list[str] = shared.TARGET,
    options: CaptureOptions = CaptureOptions(),
    executed: bool = _EXECUTED,
    precisions: str = _PRECISIONS,
    schemes: str = _SCHEMES,
    data: Path | None = _DATA,
    labels: Path | None = _LABELS,
    budget: str = typer.Option("0.5 s", "--budget", help="Time of running each file here."),
    edits: list[str] = shared.EDITS,
    html: Path | None = typer.Option(None, "--html", help="Write the report as one HTML page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Show a model at each precision: bound, expected and measured time, bytes, energy, accuracy, executed formats.

    Quantised ONNX files are written by ONNX Runtime's quantiser and run on one thread of this CPU, in a process of
    their own; other precisions are bounds and expected times on each --target. Smaller, executed in 8 bits, and faster
    are three different facts: each has its column.
    """
    from nearpeak.api import model_precision
    from nearpeak.reports import executed_precision_report, precision_table_report

    shared.check_writable(html)
    if executed:
        stated = {"--target": target, "--data": data, "--labels": labels, "--precisions": precisions}
        for name, value in stated.items():
            if value:
                raise SpecError(f"{name}: goes not with --executed, which only reads the file; leave one out")
        with shared.progress("reading the graph"):
            graph = model_precision.executed_precision(model, options)
        document, record = executed_precision_report.document_of(graph), executed_precision_report.to_json(graph)
        return _deliver(document, record, html, json=json, why=why)
    targets = shared.targets_of(target, edits) if target else []
    with shared.progress("quantising and running the files"):
        table = model_precision.precision(
            model, targets, options, precisions=_names(precisions), data=data, labels=labels,
            schemes=_names(schemes) if schemes else None, budget_s=shared.seconds_of(budget, "--budget", "s"),
        )  # fmt: skip
    document, record = precision_table_report.document_of(table), precision_table_report.to_json(table)
    return _deliver(document, record, html, json=json, why=why)


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas; `none` is an empty one."""
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))


def _deliver(document: "Document", record: str, html: Path | None, *, json: bool, why: bool) -> None:
    from nearpeak.reports.document.html import to_html

    if html is not None:
        shared.write_whole(html, to_html(document))
    shared.tell(lambda: document, lambda: record, json=json, why=why)
