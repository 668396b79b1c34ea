"""Command `nearpeak plan edge`: the power modes of a board for a model."""

import re
import sys
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

_TARGET = typer.Option(..., "--target", "-t", help="Board with power modes, e.g. jetson_agx_orin.")
_PROFILE = typer.Option(
    None, "--profile",
    help='Measured modes, JSON lines: {"mode": "15W", "time": "7.3 ms", "power": "9.1 W", "scope": "vdd_in"}; '
    "with a model's name those of a reference model.",
)  # fmt: skip
_MINIMISE = typer.Option("energy", "--minimise", help="Figure to minimise: energy, time or power.")
_WITHIN = typer.Option("", "--within", help="Items per second to keep up with, e.g. 30fps.")
_EVERY = typer.Option("", "--every", help="Time from one run to the next, e.g. 100ms; the board rests between them.")
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
    execution: str = typer.Option(
        "graph", "--execution", help="How an engine's kernels are submitted: graph or eager."
    ),
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
    from nearpeak.api.edge_plan import EdgeJob, plan_edge
    from nearpeak.core.edge.scoped_power import PowerScope, scope_of
    from nearpeak.exchange.mode_samples import read_mode_samples
    from nearpeak.reports.systems import edge_plan_report as report
    from nearpeak.targets.power_modes import board_modes

    shared.check_writable(html)
    modes = [mode.name for mode in board_modes(target)]
    samples = () if profile is None else read_mode_samples(profile, modes)
    scopes = [sample.power.scope for sample in samples if sample.power is not None]
    chosen = scope_of(scope) if scope else (scopes[0] if scopes else PowerScope.WALL)
    if execution not in ("graph", "eager"):
        raise SpecError(f"--execution {execution!r}: is not graph or eager")
    period_s = shared.seconds_of(every, "--every") if every else 0.0
    if idle and not every:
        raise SpecError(
            "--idle: the board rests between runs that come --every so often; give both, e.g. --every 100ms"
        )
    limits_s = [shared.seconds_of(deadline, "--deadline")] if deadline else []
    step = workload_of(model, options)
    item_count = options.batch or _batch(step.origin.get("batch", ""))
    if within:
        limits_s.append(item_count / _per_second(within))
    job = EdgeJob(
        minimise=minimise, deadline_s=min(limits_s, default=None), power_w=_watts(power, "--power"),
        idle_w=_watts(idle, "--idle") or 0.0, period_s=period_s, item_count=item_count,
        item="token" if step.step == "decode" else "inference", is_graph=execution == "graph",
        measure_count=measure_next,
    )  # fmt: skip
    planned = plan_edge(step, target, chosen, samples, job)
    document = report.document_of(planned)
    if html is not None:
        from nearpeak.reports.document.html import to_html

        shared.write_whole(html, to_html(document))
    if shared.as_json(json=json, text=text):
        sys.stdout.write(report.to_json(planned) + "\n")
    else:
        shared.print_document(document, why=why)


def _batch(text: str) -> int:
    """Return the batch that a captured step states; 1 where it states none.

    >>> _batch("8"), _batch("")
    (8, 1)
    """
    return int(text) if text.isdigit() and int(text) else 1


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
