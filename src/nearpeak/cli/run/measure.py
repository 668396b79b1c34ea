"""Command `nearpeak measure`: cases timed on this machine, each in its own process, with every sample saved."""

import json as jsonlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import cases_of, suite_of_words
from nearpeak.cli.shared.completion import operators, runners, targets
from nearpeak.cli.shared.options import seconds_of
from nearpeak.cli.shared.push_option import PUSH, check_push, pushed
from nearpeak.errors import INCORRECT_CODE, UNAVAILABLE_CODE, SpecError
from nearpeak.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearpeak.core.history.stored_run import RunRecord
    from nearpeak.core.runs.measurement import Measurement, Timing
    from nearpeak.core.work.target import Target
    from nearpeak.measurement.machine.other_load import OtherLoad

CASES = typer.Argument(
    None,
    metavar="OP AXIS=EXTENT… | FILE",
    help="One case in words, a suite, a table, or a saved workload.",
    autocompletion=operators,
)
BUDGET = typer.Option("300 ms", "--budget", help="Time to sample each case, e.g. '300 ms'.")
LIMIT = typer.Option("60 s", "--limit", help="Wall time after which a case is terminated.")
CACHE = typer.Option(
    "cold", "--cache", help="cold: inputs come from memory at every call; hot: as the last call left them."
)
CACHE_HOT = typer.Option("hot", "--cache", help="hot: as the last call left inputs; cold: they come from memory.")
THREADS = typer.Option(1, "--threads", min=1, help="Threads that a case may use.")
MEMORY = typer.Option("8 GB", "--memory", help="Memory that the process of a case may take, e.g. '4 GB'.")
NO_CHECK = typer.Option(False, "--no-check", help="Time results without checking them.")
TARGET_OPTION = typer.Option(
    "", "--target", "-t", help="Device of a simulated runner: h200_sxm.", autocompletion=targets
)
TELEMETRY_OPTION = typer.Option(
    "",
    "--telemetry",
    metavar="[=HZ]",
    help="Sample power, clocks, temperatures and load during the cases, 100 times a second or =HZ.",
)


def measure(
    cases: list[str] = CASES,
    runner: str = typer.Option(
        "torch_cpu", "--runner", help="Runner of the cases ('nearpeak show runners').", autocompletion=runners
    ),
    target: str = TARGET_OPTION,
    edits: list[str] = typer.Option([], "--set", help="--target: what-if edit, e.g. l2.capacity='100 MB'. Repeatable."),
    out: Path | None = typer.Option(None, "--out", help="Result file (.jsonl): goes on where it stopped."),
    export: list[Path] = typer.Option([], "--export", help="Also write .parquet, or .json as pytest-benchmark does."),
    budget: str = BUDGET,
    limit: str = LIMIT,
    cache: str = CACHE,
    threads: int = THREADS,
    memory: str = MEMORY,
    fresh: bool = typer.Option(False, "--fresh", help="Start a new process for each case instead of forking one."),
    launches: int = typer.Option(1, "--launches", min=1, help="Fresh processes that measure each case."),
    no_check: bool = NO_CHECK,
    telemetry: str = TELEMETRY_OPTION,
    store: str | None = typer.Option(None, "--store", help="Also save the results in this store, created if missing."),
    repository: Path | None = typer.Option(None, "--repository", help="--store: git repository that is measured."),
    branch: str = typer.Option("main", "--branch", help="--store: branch whose history they belong to."),
    push: str | None = PUSH,
    json: bool = shared.JSON,
) -> None:
    """Run cases and show the time of each call, with its bound where this machine's roofs are known.

    A case that crashes, hangs, takes too much memory or is wrong becomes a row that says so. Of a suite, a file or a
    ready-made one, the chosen cases run, and reasons and counts stay with the results ('nearpeak suite show SUITE
    --results FILE'). Exit code 12 when a result is wrong, 3 when there is none (crash, timeout, oom, failed) or
    the device was not to be had.
    """
    from nearpeak.api import measured_analysis
    from nearpeak.measurement.machine.other_load import cpu_times, load_between
    from nearpeak.reports.figure_text import hung

    runner = _with_target(runner, target, edits)
    wanted = suite_of_words(cases or []) or cases_of(cases, "measure")
    timing = timing_of(budget, limit, cache, threads, memory, check=not no_check)
    _check_files(out, export)
    warn_of_threads(threads)
    keep = _keeper(store, repository, branch, push, out)
    device, measurements = measured_analysis._target_of(runner), []
    rate_hz, start = rate_of(telemetry, "--telemetry") if telemetry else None, cpu_times()
    for measurement in measured_analysis.measure(
        wanted, runner, timing, out=out, fresh=fresh, launch_count=launches, telemetry_hz=rate_hz
    ):
        measurements.append(measurement)
        line = _json_line(measurement) if json else "\n".join(hung([_row(measurement, device)]))
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    _tell_busy(measurements, load_between(start, cpu_times()))
    keep(measurements)
    measurements = _reported(measurements, out)
    for path in export:
        _export(path, measurements)
    raise typer.Exit(exit_code(measurements))


def _tell_busy(measurements: "list[Measurement]", load: "OtherLoad") -> None:
    """Say on standard error that other processes took cores while this CPU was timed."""
    from nearpeak.targets import CPU

    if load.disturbs and any(measurement.target == CPU and measurement.samples_s for measurement in measurements):
        sys.stderr.write(f"{load} meanwhile, so wall times are too long: measure on an idle machine\n")


def _reported(measurements: "list[Measurement]", out: Path | None) -> "list[Measurement]":
    """Report counts on standard error; return all results of `out`, those of earlier runs included."""
    from collections import Counter

    if out is not None:
        from nearpeak.measurement.result_file import read_results

        new, measurements = len(measurements), list(read_results(out))
        note = "" if new else "; all requested results are there already, and another --out measures them again"
        sys.stderr.write(f"{out}: {counted(new, 'new result')}, {len(measurements)} in all{note}\n")
    if len(measurements) > 1:
        outcomes = Counter(measurement.outcome.value for measurement in measurements).most_common()
        sys.stderr.write(f"{', '.join(f'{count} {outcome}' for outcome, count in outcomes)}\n")
    return measurements


def _with_target(runner: str, target: str, edits: list[str]) -> str:
    """Return the runner with its simulated device behind a colon."""
    if not target:
        if edits:
            raise SpecError("--set: edits the device of --target; add --target")
        return runner
    if ":" in runner:
        raise SpecError(f"--target {target}: --runner {runner} names its own; leave one out")
    from nearpeak.measurement.runners import factory_of

    abilities = getattr(factory_of(runner), "abilities", None)
    if getattr(abilities, "argument", "") != "TARGET":
        raise SpecError(f"--target: --runner {runner} runs on a device that is there; --runner sim takes a target")
    return "+".join((f"{runner}:{target}", *edits))


def _keeper(
    place: str | None, repository: Path | None, branch: str, push: str | None, out: Path | None
) -> "Callable[[list[Measurement]], None]":
    """Return the function that saves and sends measurements; wrong options are reported before anything runs.

    With a result file, what a call that was stopped left unsaved is saved first.
    """
    from nearpeak.api import unsaved_results

    if place is None and push is None:
        if repository is not None:
            raise SpecError("--repository: says which commit --store keeps the results under; add --store")
        if out is not None:
            unsaved_results.left(out, "")
        return lambda _: None
    from nearpeak.cli.team.store import revision_of
    from nearpeak.store import open_store
    from nearpeak.store.importers.nearpeak_results import runs_of_now
    from nearpeak.store.sql_dialect import name_of, store_url
    from nearpeak.store.store_check import place_of

    check_push(push)
    whole, revision = place_of(place) if place else "", revision_of(repository, None)
    if whole:
        open_store(whole, create=True).close()

    def save(records: "tuple[RunRecord, ...]") -> None:
        if whole and records:
            with open_store(whole, create=True) as store:
                count = sum(ingested.new for ingested in store.ingest_all(records))
            sys.stderr.write(f"{place}: {count} new runs\n")
        pushed(records, push if records else None)

    if out is None:
        return lambda measurements: save(runs_of_now(measurements, revision, branch) if measurements else ())
    name = str(Path(whole).resolve()) if whole and "://" not in whole else name_of(store_url(whole)) if whole else ""
    destination = " and ".join(filter(None, (name, push)))
    if (unsaved := unsaved_results.left(out, destination)) is not None:
        save(unsaved.runs(out))
    begun = unsaved_results.begin(out, destination, revision, branch)

    def save_file(_: "list[Measurement]") -> None:
        save(begun.runs(out))
        unsaved_results.end(out)

    return save_file


def timing_of(budget: str, limit: str, cache: str, threads: int, memory: str, *, check: bool) -> "Timing":
    """Return the timing that the options state."""
    from nearpeak.core.runs.measurement import Timing

    if cache not in ("cold", "hot"):
        raise SpecError(f"--cache {cache!r}: is neither cold nor hot")
    return Timing(
        budget_s=seconds_of(budget, "--budget"), limit_s=seconds_of(limit, "--limit"), cache=cache,
        thread_count=threads, memory_bytes=shared.bytes_of(memory), validate=check,
    )  # fmt: skip


def warn_of_threads(threads: int) -> None:
    """Say so when a case is to use more threads than this process has cores."""
    from nearpeak.base.host_system import usable_core_count

    if threads > (count := usable_core_count()):
        cores = "1 core that is" if count == 1 else f"{count} cores that are"
        sys.stderr.write(f"--threads {threads}: they share the {cores} usable here\n")


def rate_of(text: str, option: str) -> float:
    """Return the readings per second that an option states, e.g. `100` or `10 Hz`."""
    try:
        return float(text.removesuffix("Hz").strip())
    except ValueError:
        raise SpecError(f"{option} {text!r}: is not a number of readings per second; e.g. {option}=100") from None


def exit_code(measurements: "list[Measurement]") -> int:
    """Return the documented exit code of some measurements."""
    from nearpeak.core.runs.measurement import FAILURES, Outcome

    outcomes = {measurement.outcome for measurement in measurements}
    if outcomes & {Outcome.INFRA, *FAILURES}:
        return UNAVAILABLE_CODE
    if any(measurement.outcome is Outcome.SUSPECT_FAST and not measurement.has_times for measurement in measurements):
        return UNAVAILABLE_CODE
    return INCORRECT_CODE if Outcome.INCORRECT in outcomes else 0


def _check_files(out: Path | None, export: list[Path]) -> None:
    for path in filter(None, (out, *export)):
        shared.check_writable(path)
    if out is not None and out.suffix != ".jsonl":
        raise SpecError(f"--out {out}: results are JSON lines; name it .jsonl")
    for path in export:
        if path.suffix not in (".parquet", ".json"):
            raise SpecError(f"--export {path}: is neither .parquet nor .json")
        if path.suffix == ".parquet":
            from nearpeak.measurement.result_export import check_parquet

            check_parquet(path)


def _json_line(measurement: "Measurement") -> str:
    from nearpeak.exchange.measurement_lines import environment_record, measurement_record

    record = measurement_record(measurement, "")
    record.pop("key")
    record["environment"] = environment_record(measurement.environment) if measurement.environment else None
    return jsonlib.dumps(record)


def _row(measurement: "Measurement", device: "Target | None") -> str:
    """Return a measurement in one line for people."""
    from nearpeak.api.measured_analysis import bound_s, known_target
    from nearpeak.core.runs.measurement import Outcome
    from nearpeak.ops import label_of
    from nearpeak.reports.figure_text import known_to, percent
    from nearpeak.units import show

    label = label_of(measurement.case)
    if not measurement.has_times:
        count = len(measurement.details.splitlines())
        more = f" (--json and --out keep {count} lines of it)" if count > 1 else ""
        return f"{label}: {measurement.outcome.value}: {measurement.note}{more}"
    estimate = measurement.estimate()
    text = f"{label}: {show(estimate.centre_s, 's')} {known_to(estimate)}"
    more = "; a longer --budget takes more" if measurement.outcome is Outcome.BUDGET and not estimate.is_known else ""
    text += f" ({measurement.outcome.value}, {estimate.sample_count} samples{more})"
    if measurement.cpu_samples_s and min(measurement.cpu_samples_s) > 0:
        text += f", CPU {show(measurement.cpu_low_s, 's')}"
    ran_on = device or known_target(measurement.target)
    least_s = bound_s(measurement.case, ran_on)
    if least_s is not None:
        attained = percent(least_s / estimate.centre_s)
        text += f", bound {show(least_s, 's')} ({attained} attained{_cores(measurement, ran_on)})"
    if measurement.telemetry is not None:
        from nearpeak.reports.telemetry_report import in_brief

        text += f", {in_brief(measurement.telemetry)}"
    return text + (f"; {measurement.note}" if measurement.note else "")


def _cores(measurement: "Measurement", device: "Target | None") -> str:
    """Return on how many cores a case ran, where the bound is that of more: a share of theirs is no fault of the case.

    Without `--threads` a case has one thread, and the roofs of the target `cpu` are those of all cores.
    """
    from nearpeak.targets import CPU

    count = measurement.method.thread_count if measurement.method is not None else 0
    if device is None or device.name != CPU or not 0 < count < device.sm_count:
        return ""
    return f" on {count} of {device.sm_count} cores"


def _export(path: Path, measurements: "list[Measurement]") -> None:
    from nearpeak.measurement.result_export import write_parquet, write_pytest_benchmark

    (write_parquet if path.suffix == ".parquet" else write_pytest_benchmark)(path, measurements)
    sys.stderr.write(f"wrote {path}\n")
