"""Command `nearpeak plan edge`: the power modes of a board for a model."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.api.edge.edge_plan import EdgeJob
    from nearpeak.core.edge.board_mode import ModeSample
    from nearpeak.core.edge.scoped_power import PowerScope
    from nearpeak.core.work.workload import Workload

_TARGET = typer.Option(..., "--target", "-t", help="Board with power modes, e.g. jetson_agx_orin.")
_PROFILE = typer.Option(
    None, "--profile",
    help='Measured modes, JSON lines: {"mode": "15W", "time": "7.3 ms", "power": "9.1 W", "scope": "vdd_in"}; '
    "with a model's name those of a reference model.",
)  # fmt: skip
_MINIMISE = typer.Option("energy", "--minimise", help="Figure to minimise: energy, time or power.")
_WITHIN = typer.Option("", "--within", help="Items per second to keep up with, e.g. 30fps.")
_EVERY = typer.Option("", "--every", help="Time from one run to the next, e.g. 100ms; the board rests between them.")
_EXECUTION = typer.Option(
    "", "--execution", help="How kernels are submitted: graph or eager; by default graph for engines and ONNX files."
)
_SCOPE = typer.Option("", "--scope", help="Where power is measured: wall, vdd_in or cpu_gpu_cv; that of the profile.")


@takes_capture_options(*SIZES, *FORMATS, "shapes", "engine")
def edge(
    model: str = typer.Argument(help="Model name, hf:<model type>, config.json, problem file, .pt2, or ONNX file."),
    target: str = _TARGET,
    options: CaptureOptions = CaptureOptions(),
    profile: Path | None = _PROFILE,
    minimise: str = _MINIMISE,
    deadline: str = typer.Option("", "--deadline", help="Longest time of a run, e.g. 33ms."),
    within: str = _WITHIN,
    power: str = typer.Option("", "--power", help="Highest mean power, e.g. 15W."),
    idle: str = typer.Option("", "--idle", help="Power of the board at rest, e.g. '3.2 W'; with --every."),
    every: str = _EVERY,
    scope: str = _SCOPE,
    execution: str = _EXECUTION,
    dla: bool = typer.Option(False, "--dla", help="Also the time on one deep-learning accelerator (int8)."),
    measure_next: int = typer.Option(
        0, "--measure-next", min=0, max=1000, help="Name modes whose measurement says most."
    ),
    html: Path | None = typer.Option(None, "--html", help="Write a page."),
    why: bool = shared.WHY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:
    """Show time, power and energy of a model in every power mode of a board, and which mode to choose.

    Times are those of an inference engine's kernels with --engine; measured modes correct them. Power is that of one
    place of measurement, and powers of different places are never mixed. Nothing changes the board's mode.
    """
    from nearpeak.api.edge.edge_plan import plan_edge, with_accelerators
    from nearpeak.core.work.engine_choice import engine_of
    from nearpeak.frontends.inference_engine.engine_lowering import lowered
    from nearpeak.reports.systems import edge_plan_report as report
    from nearpeak.systems.edge.dla_engine import dla_modes

    shared.check_writable(html)
    samples, chosen = _measured(profile, target, scope)
    limits = _Limits(deadline=deadline, within=within, power=power, idle=idle, every=every)
    job = limits.job(minimise, execution, measure_next)
    if dla:
        dla_modes(target.partition(":")[0])  # a board without one is refused before anything is captured
    captured = workload_of(model, replace(options, engine=None))
    step = captured if options.engine is None else lowered(captured, engine_of(options.engine))
    planned = plan_edge(step, target, chosen, samples, limits.of_step(job, step, options.batch))
    planned = with_accelerators(planned, captured) if dla else planned
    document = report.document_of(planned)
    shared.write_page(html, document)
    if shared.as_json(json=json, text=text):
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(document, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Limits and the period of a job, as they are written."""

    deadline: str
    """Longest time of a run."""
    within: str
    """Items per second."""
    power: str
    """Highest mean power."""
    idle: str
    """Power at rest."""
    every: str
    """Time from one run to the next."""

    def job(self, minimise: str, execution: str, measure_next: int) -> "EdgeJob":
        """Return the job before its step is known; what is wrong is said before a capture."""
        from nearpeak.api.edge.edge_plan import EdgeJob

        if execution not in ("", "graph", "eager"):
            raise SpecError(f"--execution {execution!r}: is not graph or eager")
        if self.idle and not self.every:
            raise SpecError("--idle: the board rests between runs that come --every so often; give both, e.g. 100ms")
        if self.within:
            _per_second(self.within)
        return EdgeJob(
            minimise=minimise, deadline_s=shared.seconds_of(self.deadline, "--deadline") if self.deadline else None,
            power_w=_watts(self.power, "--power"), idle_w=_watts(self.idle, "--idle") or 0.0,
            period_s=shared.seconds_of(self.every, "--every") if self.every else 0.0, execution=execution,
            measure_count=measure_next,
        )  # fmt: skip

    def of_step(self, job: "EdgeJob", step: "Workload", batch: int | None) -> "EdgeJob":
        """Return the job of a step: its items, and the deadline by which they keep up."""
        stated = step.origin.get("batch", "")
        count = batch or (int(stated) if stated.isdigit() and int(stated) else 1)
        limits_s = [job.deadline_s] if job.deadline_s is not None else []
        limits_s += [count / _per_second(self.within)] if self.within else []
        item = "token" if step.step == "decode" else "inference"
        return replace(job, item_count=count, item=item, deadline_s=min(limits_s, default=None))


def _measured(profile: Path | None, board: str, scope: str) -> "tuple[tuple[ModeSample, ...], PowerScope]":
    """Return the measurements of a profile and the scope of the plan: stated, that of the profile, or the wall."""
    from nearpeak.core.edge.scoped_power import PowerScope, scope_of
    from nearpeak.exchange.mode_samples import read_mode_samples
    from nearpeak.targets.power_modes import board_modes

    modes = [mode.name for mode in board_modes(board)]
    samples = () if profile is None else read_mode_samples(profile, modes)
    scopes = [sample.power.scope for sample in samples if sample.power is not None]
    return samples, scope_of(scope) if scope else (scopes[0] if scopes else PowerScope.WALL)


def _watts(text: str, option: str) -> float | None:
    """Return the power of an option, with or without a space before the unit; none where it is not given.

    >>> _watts("15W", "--power"), _watts("3.2 W", "--idle"), _watts("", "--power")
    (15.0, 3.2, None)
    """
    from nearpeak.units import parse

    if not text:
        return None
    try:
        value = parse(text, "W")
    except SpecError as error:
        raise SpecError(f"{option}: {error}") from None
    if value <= 0:
        raise SpecError(f"{option} {text!r}: is not above 0 W")
    return value


def _per_second(text: str) -> float:
    """Return the rate of `--within`.

    >>> _per_second("30fps"), _per_second("12.5/s")
    (30.0, 12.5)
    """
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(fps|/s)", text.strip())
    if match is None or not float(match[1]):
        raise SpecError(f"--within {text!r}: is not a rate; e.g. 30fps or 12/s")
    return float(match[1])
