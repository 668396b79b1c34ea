"""Command `nearpeak amp`: the expected gain of mixed precision, and the precision that a trace shows."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.completion import models
from nearpeak.cli.shared.trace_command import is_trace
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.units import parse

if TYPE_CHECKING:
    from nearpeak.core.work.target import Target
    from nearpeak.precision.actual_gain import Steps
    from nearpeak.reports.precision_report import Priced

TRACE = typer.Option(None, "--trace", help="Trace of the model under autocast: its precision, and where time went.")
BASELINE = typer.Option(None, "--baseline", help="With --trace: the same without autocast, to calibrate and compare.")


@takes_capture_options(*SIZES, "layers", "evaluation", "guess_sizes")
def amp(
    model: str = typer.Argument(
        help="Model name, hf:<model type>, config.json, or problem file: what can be captured in fp32 and lowered. Or "
        "a profiler's trace: in which precision its products ran.",
        autocompletion=models,
    ),
    target: list[str] = shared.TARGET,
    autocast: str = typer.Option("bf16", "--autocast", help="Format that autocast lowers to: bf16 or fp16."),
    options: CaptureOptions = CaptureOptions(),
    train: bool = typer.Option(False, "--train", help="A training step, as --phase train."),
    host: str = typer.Option(
        "4 us", "--host", help="Time of an eager host for each operator, e.g. '4 us'; '0 s' for none."
    ),
    edits: list[str] = shared.EDITS,
    trace: Path | None = TRACE,
    baseline: Path | None = BASELINE,
    html: Path | None = typer.Option(None, "--html", help="Write the report as one HTML page."),
    json: bool = shared.JSON,
) -> None:
    """Estimate the benefit of autocast on a GPU: speed-up by operator and step, every cast, and the TF32 trap.

    The step is captured in fp32, lowered as `torch.autocast("cuda")` lowers it, and converted as a whole. An fp32
    baseline may run in TF32 already: convolutions do by default, matrix products do not; both are shown. With --trace:
    what ran instead, and where the difference goes.
    """
    if train and options.step not in ("forward", "train"):
        raise SpecError(f"--train: is a training step, --phase says {options.step}; give one")
    if baseline is not None and trace is None:
        raise SpecError("--baseline: needs the trace of a run under autocast; add --trace")
    shared.check_writable(html)
    if is_trace(model):
        if trace is not None or html is not None:
            raise SpecError(f"--trace, --html: {model} is a trace itself; give the model, and the trace with --trace")
        return _print_precision(Path(model), target, edits, json=json)
    devices = shared.targets_of(target, edits)
    if trace is not None and len(devices) > 1:
        raise SpecError(f"--target: {len(devices)} devices; a trace ran on one")
    from nearpeak.precision.actual_gain import Steps

    single = replace(options, step="train" if train else options.step, dtype="fp32")
    steps = Steps(
        written=workload_of(model, single),
        lowered=workload_of(model, replace(single, autocast=autocast)),
        converted=workload_of(model, replace(single, dtype=autocast)),
    )
    fixed_s = parse(host, "s")
    priced = [_priced(steps, device, fixed_s, trace, baseline) for device in devices]
    return _deliver(priced, html, json=json)


def _priced(steps: "Steps", device: "Target", fixed_s: float, trace: Path | None, baseline: Path | None) -> "Priced":
    """Return the expected precision gains on a device, and a trace compared with them."""
    from nearpeak.precision.actual_gain import expected_and_executed
    from nearpeak.precision.expected_times import mixed_precision_of
    from nearpeak.precision.verdict import verdict_of
    from nearpeak.reports.precision_report import Priced

    eager = mixed_precision_of(steps.written, steps.lowered, device, fixed_s=fixed_s)
    if trace is None:
        alone = mixed_precision_of(steps.written, steps.lowered, device, steps.converted)
        return Priced(alone, eager, verdict_of(alone, eager))
    precision = expected_and_executed(steps, device, trace, baseline)
    eager = mixed_precision_of(
        steps.written, steps.lowered, device, fixed_s=fixed_s, efficiency=precision.efficiency
    )  # fmt: skip
    return Priced(
        precision.expected, eager, verdict_of(precision.expected, eager), precision.gap, precision.step_counts
    )


def _deliver(results: "list[Priced]", html: Path | None, *, json: bool) -> None:
    from nearpeak.api.questions import version
    from nearpeak.reports import precision_report as report

    document = report.document_of(results, version())
    shared.write_page(html, document)
    if not json:
        shared.print_document(document)
    for result in results if json else ():
        sys.stdout.write(report.to_json(result.device, result.eager, result.verdict, result.gap) + "\n")


def _print_precision(path: Path, target: list[str], edits: list[str], *, json: bool) -> None:
    """Print in which precision the products of a trace ran."""
    from nearpeak.precision.actual_gain import precision_of_file
    from nearpeak.reports import precision_report as report

    devices = shared.targets_of(target, edits) if target else []
    _, precision = precision_of_file(path, devices[0] if devices else None)
    if json:
        sys.stdout.write(report.executed_to_json(precision) + "\n")
    else:
        shared.print_document(report.executed_document_of(precision))
