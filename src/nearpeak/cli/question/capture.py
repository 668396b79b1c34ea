"""Command `nearpeak capture`: the operator calls of a model, saved as a workload."""

import json as jsonlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.completion import models
from nearpeak.core.work.capture_options import CaptureOptions

if TYPE_CHECKING:
    from nearpeak.core.work.workload import Workload


@takes_capture_options(
    *SIZES, "layers", *FORMATS, "autocast", "fusion", "guess_sizes", "evaluation", "shapes", "input_values", "axes"
)
def capture(
    model: str = typer.Argument(
        help="Model name, hf:<model type>, config.json, problem file, .pt2, ONNX file, operator log, sweep, suite "
        "or kernel definition.",
        autocompletion=models,
    ),
    options: CaptureOptions = CaptureOptions(),
    out: Path | None = typer.Option(None, "--out", "-o", help="Write the whole workload as JSON."),
    json: bool = shared.JSON_LINES,
) -> None:
    """List the distinct operator cases of a model step with their counts; in a pipe as JSON lines.

    Capturing executes the model's code, in a child process with a time and a memory limit; nothing is downloaded.
    """
    shared.check_writable(out)
    workload = workload_of(model, options)
    if out is not None:
        from nearpeak.frontends.files.saved_workload import save_text

        shared.write_whole(out, save_text(workload))
    if json:
        for case, count in workload.case_counts().items():
            sys.stdout.write(jsonlib.dumps({**case.record(), "count": count}) + "\n")
        for name, count in workload.uncovered_counts().items():
            sys.stderr.write(f"uncovered: {name}, {count} calls\n")
    else:
        _print_table(workload)


def _print_table(workload: "Workload") -> None:
    from nearpeak.ops import label_of
    from nearpeak.reports.document import Cell, Document, Table, columns

    rows: list[tuple[int, str | Cell]] = [(count, label_of(case)) for case, count in workload.case_counts().items()]
    rows += [(count, Cell(value=f"uncovered: {name}", kind="warn"))
             for name, count in workload.uncovered_counts().items()]  # fmt: skip
    table = Table(columns=columns("#calls", "~case"), rows=rows)
    shared.print_document(Document(title=f"{workload.name}, {workload.step} step", blocks=[table]))
