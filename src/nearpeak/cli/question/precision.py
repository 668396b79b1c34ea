"""Command `nearpeak precision`: a model at each number format, and the format in which it really runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import takes_capture_options
from nearpeak.core.work.capture_options import CaptureOptions

if TYPE_CHECKING:
    from nearpeak.reports.document import Document

_EXECUTED = typer.Option(
    False, "--executed", help="Only say in which formats the products of a file really run, and what passes are left."
)


@takes_capture_options("batch", "guess_sizes", "shapes", "input_values")
def precision(
    model: str = typer.Argument(help="ONNX file; with --executed also an ONNX Runtime profile or trtexec layers."),
    options: CaptureOptions = CaptureOptions(),
    executed: bool = _EXECUTED,  # noqa: ARG001
    html: Path | None = typer.Option(None, "--html", help="Write the report as one HTML page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Show the executed precision of a model."""
    from nearpeak.api.model_precision import executed_precision
    from nearpeak.reports import executed_precision_report as report

    shared.check_writable(html)
    with shared.progress("reading the graph"):
        graph = executed_precision(model, options)
    _deliver(report.document_of(graph), report.to_json(graph), html, json=json, why=why)


def _deliver(document: "Document", record: str, html: Path | None, *, json: bool, why: bool) -> None:
    from nearpeak.reports.document.html import to_html

    if html is not None:
        shared.write_whole(html, to_html(document))
    shared.tell(lambda: document, lambda: record, json=json, why=why)
