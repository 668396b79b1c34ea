"""Command `nearpeak calibrate`: CPU roofs, fitted model coefficients, and plans of cases to measure."""

import sys
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.table_files import check_table, naming, write_cases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearpeak.core.answers.calibration import RejectedRow
    from nearpeak.core.work.target import Target
    from nearpeak.prediction.calibration.device_fit import Fits


def roofs(
    probes: bool = typer.Option(True, "--probes/--no-probes", help="Also time a few sizes of many operators."),
    busy: bool = typer.Option(False, "--busy", help="Keep roofs although other processes took cores, marked so."),
) -> None:
    """Measure the roofs of this machine's CPU, in about a minute; the best ever reached make the target 'cpu'.

    While other processes take cores the machine seems slower than it is: nothing is saved then, and the exit code is 3.

    With PyTorch installed, a few sizes of many operators are timed on one thread as well, in one or two minutes of CPU
    time: what 'nearpeak predict' and 'nearpeak analyze' expect on the target 'cpu' follows from them.
    """
    from nearpeak.api.measured_analysis import measure_roofs
    from nearpeak.units import show

    with shared.progress("measuring products, memory and launches"):
        path, figures = measure_roofs(busy=busy)
    units = {"memory": "B/s", "launch": "s"}
    for name, value in figures.items():
        sys.stdout.write(f"{name:7} {show(value, units.get(name, 'FLOP/s'))}\n")
    sys.stderr.write(f"wrote {path}\n")
    if probes:
        _probes()


def _probes() -> None:
    """Time the probes of the CPU; without PyTorch say that nothing will be predicted for it."""
    from nearpeak.api.measured_analysis import probe_cpu
    from nearpeak.errors import MissingExtraError

    try:
        with shared.progress("timing operators on one thread"):
            sys.stderr.write(f"wrote {probe_cpu()}\n")
    except MissingExtraError as error:
        sys.stderr.write(f"no probes of operators: {error}\n")


def fit(
    data: Path = typer.Option(
        ..., "--data", help="Table (.csv, .jsonl, .parquet): op, dtype, axes and a time column such as time_us."
    ),
    target: list[str] = shared.ONE_TARGET,
    source: str = typer.Option("", "--source", help="Where the times come from: machine, driver, date."),
    out: Path | None = typer.Option(
        None, "--out", help="Coefficient file; by default the target's in the user folder."
    ),
    residuals: Path | None = typer.Option(
        None, "--residuals", help="Write the table with what the fit leaves at each row (.csv, .jsonl, .parquet)."
    ),
    json: bool = shared.JSON,
) -> None:
    """Fit the coefficients of predictions to measurements of a device, and save them for 'nearpeak predict'.

    The table has op, dtype, the operator's axes, and one column of times named with its unit (time_s, latency_us, …).
    Scalars that the cases cannot pin down keep their values, and the answer says so; errors are also given for cases
    left out of the fit. Groups of other operators and formats in the file are kept. Rows faster than their bound, or
    in another unit than the others, are set aside (--json names all); a table that as a whole is in another unit, or
    of another device, is refused, and nothing is written.
    The rows that fit worst are named; --residuals adds to every row measured_s, predicted_s by the fitted coefficients,
    residual_ratio (predicted over measured, minus 1) and fit_group, or in set_aside why it was not used. The file can
    be given as --data again.
    """
    from nearpeak.prediction.calibration.coefficient_file import file_text, groups_of
    from nearpeak.prediction.calibration.device_fit import calibrate_each
    from nearpeak.prediction.calibration.samples import check_device, samples_of
    from nearpeak.prediction.documented_target import figures_digest
    from nearpeak.reports import calibration_report as report

    device = _one_target(target, "fit")
    shared.check_writable(out)
    check_table(residuals)
    path = out or _own_file(device.name)
    groups_of(path)  # a file that cannot be added to is refused before the work
    columns = _measured(data)
    with naming(data):
        samples = samples_of(columns)
        check_device(samples, device)
    with shared.progress("fitting"):
        fits = calibrate_each(samples, device, source or f"{data.name}, {len(samples.rows)} rows")
    _tell_set_aside(fits.set_aside)
    if fits.refused and not fits.fits:
        raise next(iter(fits.refused.values()))
    for name, error in fits.refused.items():
        sys.stderr.write(f"not fitted: {name}: {error}\n")
    of = {"device": device.name, "figures": figures_digest(device)}
    groups = {**groups_of(path), **{group.name: {**of, **group.entry} for group in fits.fits}}
    shared.tell(
        lambda: report.fit_document(device, fits.fits),
        lambda: report.fit_to_json(device, fits.fits, fits.set_aside, fits.refused),
        json=json,
    )
    shared.write_whole(path, file_text(groups))
    if residuals is not None:
        _write_residuals(residuals, columns, fits)


def _measured(data: Path) -> "dict[str, object]":
    """Return the columns of a table of measurements, less those that an earlier fit added."""
    from nearpeak.frontends.files.case_tables import read_columns
    from nearpeak.prediction.calibration.samples import TIME_UNITS
    from nearpeak.reports.calibration_report import RESIDUAL_COLUMNS

    columns = read_columns(data)
    if not set(RESIDUAL_COLUMNS) <= set(columns):
        return columns
    is_only_time = set(TIME_UNITS).intersection(columns) == {"measured_s"}
    added = set(RESIDUAL_COLUMNS) - ({"measured_s"} if is_only_time else set())
    return {name: column for name, column in columns.items() if name not in added}


def _write_residuals(path: Path, columns: "Mapping[str, object]", fits: "Fits") -> None:
    """Write a table with what its fit leaves at each row, or why the row was not used."""
    from nearpeak.reports.calibration_report import residual_columns

    count = max(len(column) for column in columns.values() if isinstance(column, Sized))
    left = residual_columns(fits.fits, (*fits.set_aside, *fits.left_out), count)
    if "measured_s" in columns:  # the table's own times, which stay where a row was not used
        left.pop("measured_s")
    write_cases(path, {**columns, **left})


def fabric(
    ranks: list[int] = typer.Option([2, 4], "--ranks", help="Processes of a group, 2 to 16; repeatable."),
    budget: str = typer.Option("250ms", "--budget", help="Time for each kind of collective and size, e.g. 100ms."),
    out: Path | None = typer.Option(
        None, "--out", help="Fabric file (.toml); by default 'gloo' in the user folder, which --fabric gloo names."
    ),
) -> None:
    """Measure collectives over gloo among own processes on this machine, and save the fabric that fits them.

    Base and rate are fitted for each kind of collective and number of processes to mean times, each after a stretch of
    computation as in a step; the interval holds 90 % of the repetitions. It needs PyTorch, and takes about two minutes;
    other work on the machine shows in the times.
    """
    from nearpeak.api.measured_analysis import measure_fabric
    from nearpeak.reports.calibration_report import fabric_document

    shared.check_writable(out)
    budget_s = shared.seconds_of(budget, "--budget")
    with shared.progress("measuring collectives among own processes"):
        path, fitted = measure_fabric(tuple(dict.fromkeys(ranks)), budget_s, out)
    shared.print_document(fabric_document(fitted.tiers[0].fits))
    sys.stderr.write(f"wrote {path}\n")


def plan(
    target: list[str] = shared.ONE_TARGET,
    op: str = typer.Option("gemm", "--op", help="Operator whose coefficients the plan determines."),
    dtype: str = typer.Option("bf16", "--dtype", help="Format of the cases."),
    count: int = typer.Option(30, "--count", help="Most cases to measure, 1 to 30."),
    out: Path | None = typer.Option(None, "--out", help="Table of the cases (.csv, .jsonl), to be measured."),
    json: bool = shared.JSON,
) -> None:
    """List the most informative cases to measure on a device, and the gain in certainty of predictions."""
    from nearpeak.frontends.files.case_tables import rows_to_columns, write_columns
    from nearpeak.prediction.calibration.measurement_design import design
    from nearpeak.reports import calibration_report as report

    device = _one_target(target, "plan")
    check_table(out)
    planned = design(device, op, {"dtype": dtype}, count)
    shared.tell(lambda: report.plan_document(device, planned), lambda: report.plan_to_json(device, planned), json=json)
    if out is not None:
        write_columns(out, rows_to_columns([point.case.record() for point in planned.points]))
        sys.stderr.write(f"wrote {out}\n")


def stack(
    data: Path = typer.Option(
        ..., "--data", help="Table (.csv, .jsonl, .parquet): model, fields of a training plan, and step_s or step_ms."
    ),
    target: list[str] = shared.ONE_TARGET,
    fabric: str = typer.Option("", "--fabric", help="Network between nodes, e.g. ib400; empty for a single node."),
    name: str = typer.Option("pytorch-eager", "--stack", help="Software stack to start from, or a TOML file."),
    source: str = typer.Option("", "--source", help="Where the times come from: machine, driver, date."),
    out: Path | None = typer.Option(None, "--out", help="TOML file of the fitted stack; by default none is written."),
    json: bool = shared.JSON,
) -> None:
    """Fit a stack's host times, at most two coefficients, to measured step times of training plans.

    One measured step fits the host time of a launched kernel; more fit the fixed time of a micro-batch as well. Where
    CUDA graphs launch the kernels, the latter alone is fitted. The fitted file can be given wherever a stack is asked
    for.
    """
    from nearpeak.api.training.stack_calibration import calibrate_stack, measured_steps, stack_text
    from nearpeak.frontends.files.case_tables import read_columns
    from nearpeak.reports.calibration_report import stack_document, stack_to_json
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets.clusters import cluster_of

    device = _one_target(target, "stack")
    shared.check_writable(out)
    steps = measured_steps(read_columns(data), f"table {data}")
    most = max(step.plan.rank_count for step in steps)
    cluster = cluster_of(f"{most}x{device.name}", fabric)
    with shared.progress("fitting"):
        fit = calibrate_stack(steps, cluster, stack_of(name), source or f"{data.name}, {len(steps)} steps")
    shared.tell(lambda: stack_document(fit), lambda: stack_to_json(fit), json=json)
    if out is not None:
        shared.write_whole(out, stack_text(fit.stack))


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = shared.group_of("Measure or fit what a device can do.")
    group.callback()(_calibrate)
    for command in (roofs, fit, fabric, plan, stack):
        group.command()(command)
    app.add_typer(group, name="calibrate")


def _calibrate() -> None:
    """Measure or fit what a device can do."""


def _one_target(names: list[str], command: str) -> "Target":
    from nearpeak.errors import SpecError

    devices = shared.targets_of(names, [])
    if len(devices) != 1:
        raise SpecError(f"calibrate {command}: takes one target, got {len(devices)}; run once per target")
    if devices[0].kind == "cpu":
        raise SpecError(
            f"calibrate {command}: the target {devices[0].name} is predicted from probes of its own, "
            "not from coefficients; 'nearpeak calibrate roofs' measures them"
        )
    return devices[0]


def _own_file(name: str) -> Path:
    """Return where the user's own coefficients of a target are kept, its folder made."""
    from nearpeak.prediction.calibration.coefficient_store import stem_of
    from nearpeak.targets import user_folder

    path = user_folder() / "coefficients" / f"{stem_of(name)}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _tell_set_aside(rows: "Sequence[RejectedRow]") -> None:
    """Say on standard error which rows are not used, the first three by number."""
    if rows:
        first = "; ".join(f"row {row.row}: {f'{row.column} {row.text}'.strip()}" for row in rows[:3])
        more = "; … (--json names all)" if len(rows) > 3 else ""
        sys.stderr.write(f"{len(rows)} row{'s' if len(rows) > 1 else ''} set aside: {first}{more}\n")
