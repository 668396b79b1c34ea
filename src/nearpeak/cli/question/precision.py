"""Command `nearpeak precision`: a model at each number format, and the format in which it really runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import takes_capture_options
from nearpeak.core.answers.execution_time import check_mode
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.work.target import Target
    from nearpeak.reports.document import Document

_MODEL = typer.Argument(
    help="Float ONNX file, or whatever 'nearpeak analyze' takes; FILE.py:FUNCTION with --ptq or --qat. With "
    "--executed: an ONNX file, an ONNX Runtime profile, or trtexec's layers."
)
_EXECUTED = typer.Option(
    False, "--executed", help="Only say in which formats the products of a file really run, and what passes are left."
)
_PRECISIONS = typer.Option(
    "", "--precisions", help="Rows beside fp32, of tf32,bf16,fp16,fp8,int8,int4; all but fp16 by default."
)
_SCHEMES = typer.Option(
    "",
    "--schemes",
    help="Quantised files that run here: s8s8, u8s8, dynamic, w8, w4, …; none for none; all by default.",
)
_DATA = typer.Option(None, "--data", help="Examples (.npz, an array per input) that calibrate; random without.")
_LABELS = typer.Option(None, "--labels", help="Right class of each example (.npy), for the accuracy of each file.")
_PTQ = typer.Option("", "--ptq", help="FILE.py:FUNCTION: quantise after training to int8, int4, int3 or int2.")
_QAT = typer.Option("", "--qat", help="FILE.py:FUNCTION: quantise in training to these.")
_SEEDS = typer.Option(5, "--seeds", min=1, help="With --ptq or --qat: models that are made and trained on.")
_EPOCHS = typer.Option(5, "--epochs", min=1, help="With --ptq or --qat: extra epochs, of the fp32 control too.")


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
    ptq: str = _PTQ,
    qat: str = _QAT,
    seeds: int = _SEEDS,
    epochs: int = _EPOCHS,
    budget: str = typer.Option("0.5 s", "--budget", help="Time of running each file here."),
    execution: str = shared.EXECUTION,
    edits: list[str] = shared.EDITS,
    html: Path | None = typer.Option(None, "--html", help="Write the report as one HTML page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Show a model at each precision: bound, expected and measured time, bytes, energy, accuracy, executed formats.

    Quantised ONNX files are written by ONNX Runtime's quantiser and run on one thread of this CPU, in a process of
    their own; other precisions are bounds and expected times on each --target. Smaller, executed in 8 bits, and faster
    are three different facts: each has its column. FILE.py:FUNCTION with --ptq and --qat trains instead: the function
    takes a seed and returns a mapping with a trained model, fit(model, epochs) and accuracy(model).
    """
    shared.check_writable(html)
    check_mode(execution)
    stated = {
        "--execution": execution,
        "--target": target,
        "--data": data,
        "--labels": labels,
        "--precisions": precisions,
        "--schemes": schemes,
    }
    if executed:
        _refuse("--executed", stated | {"--ptq": ptq, "--qat": qat})
        document, record = _executed(model, options)
    elif ptq or qat:
        _refuse("--ptq and --qat", stated)
        document, record = _trained(model, options, ptq, qat, seeds, epochs)
    else:
        targets = shared.targets_of(target, edits) if target else []
        budget_s = shared.seconds_of(budget, "--budget", "s")
        files = {"data": data, "labels": labels, "budget_s": budget_s, "execution": execution}
        document, record = _table(model, targets, options, precisions, schemes, files)
    shared.write_page(html, document)
    shared.tell(lambda: document, lambda: record, json=json, why=why)


def _refuse(option: str, stated: dict[str, Any]) -> None:
    """Refuse options that another one leaves without a meaning."""
    for name, value in stated.items():
        if value:
            raise SpecError(f"{name}: goes not with {option}; leave one out")


def _executed(model: str, options: CaptureOptions) -> "tuple[Document, str]":
    """Return the executed precision of a file as document and as JSON."""
    from nearpeak.api.model_precision import executed_precision
    from nearpeak.reports.quantisation import executed_precision_report as report

    with shared.progress("reading the graph"):
        graph = executed_precision(model, options)
    return report.document_of(graph), report.to_json(graph)


def _trained(
    model: str, options: CaptureOptions, ptq: str, qat: str, seeds: int, epochs: int
) -> "tuple[Document, str]":
    """Return the accuracies of a model quantised after and in training."""
    from nearpeak.api.model_precision import training_precision
    from nearpeak.reports.quantisation import precision_table_report as report

    with shared.progress("training"):
        table = training_precision(
            model, options, ptq=_names(ptq), qat=_names(qat), seed_count=seeds, epoch_count=epochs
        )  # fmt: skip
    return report.document_of(table), report.to_json(table)


def _table(
    model: str, targets: "list[Target]", options: CaptureOptions, precisions: str, schemes: str, files: dict[str, Any]
) -> "tuple[Document, str]":
    """Return a model at each precision."""
    from nearpeak.api.model_precision import precision as table_of
    from nearpeak.reports.quantisation import precision_table_report as report

    chosen = _names(schemes) if schemes else None
    with shared.progress("quantising and running the files"):
        table = table_of(model, targets, options, precisions=_names(precisions), schemes=chosen, **files)
    return report.document_of(table), report.to_json(table)


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas; `none` is an empty one."""
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))
