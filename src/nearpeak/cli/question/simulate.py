"""Command `nearpeak simulate`: a case, step or file of streams on a simulated GPU, down to its thread blocks."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.completion import operators_or_models
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.cli.shared.simulation_output import Shown
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload


SWEEP_OPTION = typer.Option(
    [],
    "--sweep",
    help="A model: values of a figure to try, e.g. sm_count=66,132. Repeatable.",
)
SENSITIVITY_OPTION = typer.Option(False, "--sensitivity", help="A model: which figure buys most, each times 1.25.")
WORKERS_OPTION = typer.Option(1, "--workers", min=1, help="Processes that run devices of a sweep side by side.")
LAUNCH_OPTION = typer.Option(
    "", "--launch", help="A model: run it kernel by kernel, submitted as chain, eager, graph or early."
)
GOVERNED_OPTION = typer.Option(
    False,
    "--governed",
    help="Clock from power and heat, as in seconds of work; else that of bursts, as kernels are timed.",
)
TRACE_OPTION = typer.Option(None, "--trace", help="Write a trace that Perfetto opens (.json).")
HTML_OPTION = typer.Option(None, "--html", help="Draw multiprocessor activity over time, or the plots of a sweep.")
POLICY_OPTION = typer.Option(
    [], "--policy", help="Streams: one of the ways to share a device, all by default. Repeatable."
)


@takes_capture_options(*SIZES, *FORMATS)
def simulate(
    words: list[str] = typer.Argument(
        metavar="OP AXIS=EXTENT… | MODEL | STREAMS.toml",
        help="e.g. gemm m=512 n=512 k=512 dtype=bf16, or resnet-50.",
        autocompletion=operators_or_models,
    ),
    target: list[str] = shared.TARGET,
    edits: list[str] = shared.EDITS,
    options: CaptureOptions = CaptureOptions(),
    sweep: list[str] = SWEEP_OPTION,
    sensitivity: bool = SENSITIVITY_OPTION,
    workers: int = WORKERS_OPTION,
    launch: str = LAUNCH_OPTION,
    governed: bool = GOVERNED_OPTION,
    trace: Path | None = TRACE_OPTION,
    html: Path | None = HTML_OPTION,
    policy: list[str] = POLICY_OPTION,
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Run a case, or all calls of a model step, on a simulated GPU; --set makes one that does not exist.

    Thread blocks are placed on multiprocessors, share units, caches and memory, and end; durations come from their
    phases and the device's resources. A file of streams shows how sensors with rates and deadlines share a device.
    """
    from nearpeak.cli.shared import simulation_output as run

    what_if = {"--sweep": sweep, "--sensitivity": sensitivity}
    kind = _kind(words)
    unused = {} if kind == "a model" else what_if | {"--launch": launch, "--workers": workers > 1}
    for name, value in (unused | ({} if kind == "streams" else {"--policy": policy})).items():
        if value:
            raise SpecError(f"simulate: {name} has no meaning for {kind}; see 'nearpeak simulate --help'")
    _refuse_together(what_if, {"--trace": trace, "--launch": launch, "--governed": governed, "--set": edits})
    for path in (trace, html):
        shared.check_writable(path)
    devices = shared.targets_of(target, edits)
    if (trace or html) and len(devices) != 1:
        raise SpecError(f"simulate: a file takes one target, got {len(devices)}; run once per target")
    show = run.Shown(json=json, trace=trace, html=html, governed=governed, why=why)
    if kind == "streams":
        for device in devices:
            run.share_streams(Path(words[0]), device, policy, show)
        return
    if kind == "a case":
        for device in devices:
            run.case_alone(case_of(words, "simulate"), device, show)
        return
    workload = workload_of(words[0], options)
    for name, device in zip(target, devices, strict=True):
        _model(workload, name, device, sweep, sensitivity, workers, launch, show)


def _model(
    workload: "Workload", name: str, device: "Target", sweep: list[str], sensitivity: bool, workers: int, launch: str,
    show: "Shown",
) -> None:  # fmt: skip
    """Show a step as a sum of its kernels, kernel by kernel, or on edited devices."""
    from nearpeak.cli.shared import simulation_output as run

    if sweep:
        run.sweep_devices(workload, name, sweep, workers, show)
    elif sensitivity:
        run.tornado(workload, name, workers, show)
    elif launch or show.trace or show.html or show.governed:
        run.step_timeline(workload, device, launch or "chain", show)
    else:
        run.step_sum(workload, device, show)


def _kind(words: list[str]) -> str:
    """Return what the words of the command name."""
    if len(words) == 1 and words[0].endswith(".toml"):
        return "streams"
    if "=" in " ".join(words[1:]):
        return "a case"
    if len(words) > 1:
        raise SpecError("simulate: give one case (OP AXIS=EXTENT…), one model, or one file of streams")
    return "a model"


def _refuse_together(what_if: Mapping[str, object], others: Mapping[str, object]) -> None:
    """Refuse options that exclude each other."""
    used = [name for name, value in what_if.items() if value]
    if len(used) > 1:
        raise SpecError(f"simulate: {' and '.join(used)} exclude each other; give one")
    wrong = [name for name, value in others.items() if value and used]
    if wrong:
        raise SpecError(f"simulate: {used[0]} states its own edits and runs no timeline; leave {wrong[0]} out")
