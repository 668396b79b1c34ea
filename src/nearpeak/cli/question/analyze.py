"""Command `nearpeak analyze`: a report of a model or trace against its speed-of-light bounds."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.base.input_files import text_of_file
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import FORMATS, SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.completion import models, runners
from nearpeak.cli.shared.result_files import refuse_results
from nearpeak.cli.shared.time_limit_option import WITHIN, exit_code, tell_verdicts, time_limit
from nearpeak.cli.shared.trace_command import is_trace, report_on
from nearpeak.core.answers.execution_time import check_mode
from nearpeak.core.answers.prediction import BEST_SOFTWARE
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.judgement.step_answer import limit_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearpeak.core.answers.analysis import Analysis
    from nearpeak.core.answers.bound import Policy
    from nearpeak.core.answers.size_grid import SizeGrid
    from nearpeak.core.answers.time_limit import TimeLimit
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload


MODEL = typer.Argument(
    help="Model name, hf:<model type>, config.json, problem file, .pt2, ONNX file, operator log, sweep, suite, kernel "
    "definition, saved workload, or a profiler's trace.",
    autocompletion=models,
)
AGAINST = typer.Option(
    None, "--against", help="Compare with a saved report, or a trace with a trace, instead of showing one."
)
EXPECTED = typer.Option(None, "--model", help="Of a trace: the model that was meant to run.")
RANK = typer.Option([], "--rank", help="Of a trace: the trace of another rank of the job. Repeatable.")
UNPROFILED = typer.Option(None, "--unprofiled", help="Of a trace: time of a step without the profiler, as '12.3 ms'.")
PERFETTO = typer.Option(None, "--perfetto", help="Of a trace: write it for ui.perfetto.dev.")
CHROME = typer.Option(None, "--chrome", help="Of a trace: write it as Chrome JSON, for other viewers.")
PARQUET = typer.Option(None, "--parquet", help="Of a trace: write its events as a Parquet table.")
RUNNER = typer.Option(
    "torch_cpu", "--runner", help="Runner that times the operators ('nearpeak show runners').", autocompletion=runners,
)  # fmt: skip


@takes_capture_options(
    *SIZES,
    "layers",
    *FORMATS,
    "autocast",
    "fusion",
    "guess_sizes",
    "evaluation",
    "shapes",
    "input_values",
    "axes",
    "engine",
)
def analyze(
    model: str = MODEL,
    target: list[str] = shared.TARGET,
    options: CaptureOptions = CaptureOptions(),
    edits: list[str] = shared.EDITS,
    policy: str = shared.POLICY,
    algorithm: str = shared.ALGORITHM,
    no_credit: bool = shared.NO_CREDIT,
    execution: str = shared.EXECUTION,
    software: str = shared.SOFTWARE,
    within: str | None = WITHIN,
    html: Path | None = typer.Option(None, "--html", help="Write the report as one HTML page."),
    markdown: Path | None = typer.Option(None, "--markdown", help="Write the report as Markdown."),
    save: Path | None = typer.Option(None, "--save", help="Write the report as JSON, for --against later."),
    against: Path | None = AGAINST,
    expected: str | None = EXPECTED,
    rank: list[Path] = RANK,
    unprofiled: str | None = UNPROFILED,
    perfetto: Path | None = PERFETTO,
    chrome: Path | None = CHROME,
    parquet: Path | None = PARQUET,
    measure: bool = typer.Option(False, "--measure", help="Run the operators on this machine and show measured times."),
    runner: str = RUNNER,
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Show the time of a model step: which device is fastest, limit, gap, what to try, the largest batch that fits.

    Several --target stand side by side. Their column 'fits' says whether memory suffices; --why adds what is in it at
    the peak, and the largest batch that fits.

    Capturing runs the model's code in a child process with limits of time and memory; nothing is downloaded. With
    --against, MODEL may itself be a saved report. Of a trace: where its time went, what to change, its gain, each
    operator beside its bound; --model adds what was meant to run, --against compares two (exit code 10 or 11).
    """
    exports = {"perfetto": perfetto, "chrome": chrome, "parquet": parquet}
    for path in (html, markdown, save, *exports.values()):
        shared.check_writable(path)
    check_mode(execution)
    limit, take = None if within is None else time_limit(within), partial(workload_of, options=options)
    files = {html: "html", markdown: "markdown", save: "json"}
    if is_trace(model):
        _refuse_for_traces(model, {"--execution": execution, "--within": within, "--software": software})
        if measure:
            raise SpecError("--measure: times the operators of a model; a trace holds what ran already, leave it out")
        devices, workload = shared.targets_of(target, edits) if target else [], take(expected) if expected else None
        code = report_on(model, devices, workload, against, files, rank, exports, unprofiled, json=json, why=why)
        raise typer.Exit(code)
    _refuse_for_models(model, {**exports, "rank": rank, "model": expected, "unprofiled": unprofiled})
    if against is not None and _is_report(Path(model)):
        return _print_comparison(against, _load(Path(model)), json=json)
    timed, rules = runner if measure else "", shared.policy_of(policy, algorithm, no_credit)
    analysis = _analysis(take, model, target, edits, rules, timed, execution, software)
    verdicts = [] if limit is None else [limit_verdict(analysis, answer, limit) for answer in analysis.targets]
    grid = None if html is None or timed else _grid(model, options, target, edits, rules, execution, software)
    _deliver(analysis, files, against, limit, grid, why=why, json=json)
    raise typer.Exit(exit_code(verdicts))


def _devices(
    take: "Callable[[str], Workload]", model: str, target: list[str], edits: list[str], runner: str
) -> "list[Target]":
    """Return the targets; where none is named and a runner measures, the one that it times.

    A wrong model name is reported before a missing target, by the failing capture.
    """
    from nearpeak.api.measured_analysis import timed_target
    from nearpeak.frontends.huggingface.published_models import MODELS

    if not (target or runner or Path(model).exists() or model.lower() in MODELS):
        take(model)
    return shared.targets_of(target or ([timed_target(runner)] if runner else []), edits)


def _refuse_for_traces(model: str, options: dict[str, str | None]) -> None:
    """Refuse options that only the step of a model has."""
    for name, value in options.items():
        if value and value != BEST_SOFTWARE:
            raise SpecError(f"{name}: is for the step of a model, and {model} is a trace; leave it out")


def _refuse_for_models(model: str, options: dict[str, object]) -> None:
    """Refuse options that only a trace has, and files of results or other kinds, which are neither model nor trace."""
    from nearpeak.frontends.source_types import refuse_other_kind

    refuse_results(Path(model))
    refuse_other_kind(Path(model))
    used = [f"--{name}" for name, value in options.items() if value]
    if used:
        raise SpecError(f"{', '.join(used)}: {'are' if len(used) > 1 else 'is'} for a trace, and {model} is none")


def _analysis(
    take: "Callable[[str], Workload]", model: str, target: list[str], edits: list[str], bounds: "Policy", runner: str,
    execution: str, software: str,
) -> "Analysis":  # fmt: skip
    """Return the analysis of a model, with measured times where a runner is named."""
    from nearpeak.api import questions

    if runner:
        _refuse_other_targets(target, edits, runner)
    captured = take(model) if _lacks_roofs(target, runner) else None
    if captured is not None:  # a name that is wrong is said before a minute is spent
        _measure_roofs()
    targets = _devices(take, model, target, edits, runner)
    analysis = questions.analyze(captured or take(model), targets, bounds, execution=execution, software=software)
    return _measured(analysis, runner) if runner else analysis


def _grid(
    model: str, options: CaptureOptions, target: list[str], edits: list[str], bounds: "Policy", execution: str,
    software: str,
) -> "SizeGrid | None":  # fmt: skip
    """Return the answers of other sizes and formats that a page lets one choose among."""
    from nearpeak.api.step_sizes import step_grid

    devices = shared.targets_of(target, edits)
    with shared.progress("computing other sizes and formats for the page"):
        return step_grid(model, options, devices, bounds, execution=execution, software=software)


def _refuse_other_targets(target: list[str], edits: list[str], runner: str) -> None:
    """Refuse an unknown runner, and targets that it does not time, before a slow capture."""
    from nearpeak.api.measured_analysis import require_timed, timed_target
    from nearpeak.targets import CPU

    if target:
        others = [name for name in target if name != CPU]  # whose roofs may not be measured yet
        names = [name.name for name in (shared.targets_of(others, edits) if others else [])]
        require_timed(runner, [*names, *([CPU] if CPU in target else [])])
    else:
        timed_target(runner)


def _lacks_roofs(target: list[str], runner: str) -> bool:
    """Return whether a runner times this machine's CPU before its roofs have been measured."""
    from nearpeak.api.measured_analysis import roofs_file, timed_target
    from nearpeak.targets import CPU

    return bool(runner) and CPU in (target or [CPU]) and timed_target(runner) == CPU and not roofs_file().exists()


def _measure_roofs() -> None:
    """Measure what bounds on this machine's CPU rest on, as no file states it, and say so."""
    from nearpeak.api.measured_analysis import measure_roofs

    with shared.progress("measuring the roofs of this machine, in under a minute"):
        path, _ = measure_roofs(busy=True)
    is_marked = "verified = false" in text_of_file(path)
    beside = "; other processes took cores meanwhile, so its figures are marked (*)" if is_marked else ""
    sys.stderr.write(
        f"measured the roofs of this machine first: wrote {path}{beside}; 'nearpeak calibrate roofs' measures what "
        "predictions need, too\n"
    )


def _deliver(
    analysis: "Analysis", files: dict[Path | None, str], against: Path | None, limit: "TimeLimit | None",
    grid: "SizeGrid | None", *, why: bool, json: bool,
) -> None:  # fmt: skip
    """Write the requested report files, and print the report or its difference from a saved one."""
    from nearpeak.reports.analysis_document import document_of

    for path, name in files.items():
        if path is not None:
            shared.write_whole(path, _rendered(analysis, name, grid))
    if against is not None:
        _print_comparison(against, analysis, json=json)
    elif json:
        sys.stdout.write(_rendered(analysis, "json"))
        tell_verdicts(analysis, limit)
    else:
        shared.print_document(document_of(analysis, limit), why=why)


def _measured(analysis: "Analysis", runner: str) -> "Analysis":
    from rich.console import Console
    from rich.progress import Progress

    from nearpeak.api.measured_analysis import measured

    cases = len({row.case for row in analysis.rows})
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("measuring", total=cases)
        return measured(analysis, runner, progress=lambda _label: bar.advance(task))


def _rendered(analysis: "Analysis", name: str, grid: "SizeGrid | None" = None) -> str:
    from nearpeak.reports import render
    from nearpeak.reports.analysis import html

    text = html.render(analysis, grid) if name == "html" else render(analysis, name)
    return text.rstrip("\n") + "\n"


def _print_comparison(baseline: Path, candidate: "Analysis", *, json: bool) -> None:
    from nearpeak.judgement.analysis_difference import compare
    from nearpeak.reports import comparison_report as report

    comparison = compare(_load(baseline), candidate)
    if json:
        sys.stdout.write(report.to_json(comparison))
    else:
        shared.print_document(report.document_of(comparison))


def _is_report(path: Path) -> bool:
    if path.suffix == ".json" and not path.exists():
        raise SpecError(f"{path}: not found")
    return path.suffix == ".json" and '"targets"' in text_of_file(path)


def _load(path: Path) -> "Analysis":
    from nearpeak.reports.analysis.json import from_json

    if not path.exists():
        raise SpecError(f"{path}: not found")
    return from_json(text_of_file(path))
