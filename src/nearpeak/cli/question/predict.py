"""Command `nearpeak predict`: the expected time of tuned software for one case or a table of cases."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import takes_capture_options, workload_of
from nearpeak.cli.shared.case_arguments import TABLES
from nearpeak.cli.shared.completion import operators
from nearpeak.cli.shared.table_files import check_table, read_usable, write_answered
from nearpeak.cli.shared.time_limit_option import WITHIN, exit_code, tell_verdicts, time_limit
from nearpeak.core.answers.execution_time import check_mode
from nearpeak.core.work.capture_options import STORED, CaptureOptions
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.judgement.step_answer import limit_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearpeak.core.answers.prediction import Prediction
    from nearpeak.core.answers.time_limit import TimeLimit
    from nearpeak.core.work.case import Case
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.ops.shared.tables.case_table import CaseGroup
    from nearpeak.prediction.kernel_model import Setting

WORKLOADS = (".json", ".txt", ".log", ".h", ".toml", ".onnx", ".pt2", ".py")
"""Suffixes of files whose calls are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """How to predict, and how to print it."""

    calibration: Path | None
    """Coefficients of the user's own."""
    how: "Setting"
    """Conditions of the kernels."""
    json: bool
    """Whether JSON is printed instead of text."""
    why: bool
    """Whether text says what the answer rests on."""
    fabric: str = ""
    """Network between nodes, for collectives."""


WORDS = typer.Argument(
    None,
    metavar="OP AXIS=EXTENT… | FILE",
    help="e.g. gemm m=4096 n=4096 k=4096 dtype=bf16; a table, a suite, a saved workload, an operator log.",
    autocompletion=operators,
)
OUT = typer.Option(None, "--out", help="Write the table with bound_s, predicted_s and the like added.")
NO_CORRECTION = typer.Option(
    False, "--no-correction", help="Leave out the bounded correction on top of the coefficients (the term library)."
)
ELSEWHERE = typer.Option(
    False, "--elsewhere", help="Intervals for software and timing other than those behind the coefficients, yours, say."
)
SUSTAINED = typer.Option(
    None,
    "--sustained/--burst",
    help="Work that goes on for seconds, or milliseconds of it; steps: sustained, cases: burst.",
)


@takes_capture_options(*STORED, "engine")
def predict(
    words: list[str] = WORDS,
    target: list[str] = shared.TARGET,
    options: CaptureOptions = CaptureOptions(),
    cases: Path | None = typer.Option(None, "--cases", help="Table of cases (.csv, .jsonl, .parquet), or - for stdin."),
    out: Path | None = OUT,
    energy: bool = typer.Option(False, "--energy", help="Tables: add energy_j, power_w, energy_low_j, energy_high_j."),
    calibration: Path | None = typer.Option(None, "--calibration", help="Your coefficient file (.toml)."),
    no_correction: bool = NO_CORRECTION,
    elsewhere: bool = ELSEWHERE,
    sustained: bool | None = SUSTAINED,
    software: str = shared.SOFTWARE,
    execution: str = shared.EXECUTION,
    within: str | None = WITHIN,
    fabric: str = shared.FABRIC,
    stride: int = shared.STRIDE,
    edits: list[str] = shared.EDITS,
    policy: str = shared.POLICY,
    why: bool = shared.WHY,
    json: bool = shared.JSON_LINES,
) -> None:
    """Show the expected time of tuned software, with a 90 % interval and a breakdown into parts.

    A table has the columns op, dtype and the operator's axes; bound_s, predicted_s, low_s, high_s and limiter are
    added. A row that is no case, or that nothing predicts, keeps its place and says why in the column refused; the
    exit code is then 1. A suite ('nearpeak suite build') gives such a table of its cases.
    Every operator of the catalogue can be predicted on GPUs, some coarsely: the interval says how far to trust it.
    A saved workload ('nearpeak capture … -o FILE.json'), an operator log (.txt, .log) or whatever else 'nearpeak
    capture' reads from a file gives the sum over its calls, and what is not in it; for a model itself use 'nearpeak
    analyze'.
    """
    devices = shared.targets_of(target, edits, policy)
    check_table(out)
    file = _file_of(words)
    if words and cases is not None:
        raise SpecError("predict: give one case in words, or --cases FILE with --out FILE, not both")
    if words and (file is None or file.suffix in WORKLOADS) and (out is not None or energy):
        raise SpecError("predict: --out and --energy add columns to a table of cases; give one, e.g. --cases FILE")
    _refuse_without_collective(words, file, fabric, stride)
    if file is None or file.suffix not in WORKLOADS:
        narrow = {f"--{name.replace('_', '-')}": getattr(options, name) for name in STORED}
        _refuse_for_cases({"--execution": execution, "--within": within, "--engine": options.engine, **narrow})
    check_mode(execution)
    limit = None if within is None else time_limit(within)
    how = _setting(not no_correction, elsewhere, sustained, software)
    question = _Question(calibration=calibration, how=how, json=json, why=why, fabric=fabric)
    if file is not None and file.suffix in WORKLOADS:
        _predict_workload(workload_of(str(file), options), devices, question, execution, limit)
    elif words and fabric:
        _predict_between_nodes(words, devices, fabric, stride, question)
    elif words and file is None:
        _predict_case(words, devices, question)
    elif file is None and cases is None and sys.stdin.isatty():
        raise SpecError("predict: no case; e.g. nearpeak predict gemm m=4096 n=4096 k=4096 dtype=bf16 --target t4")
    elif len(devices) != 1:
        raise SpecError(f"predict: a table takes one target, got {len(devices)}; run once per target")
    else:
        _predict_table(cases or file, out, devices[0], calibration, energy=energy, how=how, json=json)


def _file_of(words: list[str] | None) -> Path | None:
    """Return the table or workload that the only word names; none where the words are a case."""
    suffix = Path((words or [""])[0]).suffix
    suffix = suffix.lower() if suffix.lower() in TABLES else suffix  # suffixes of tables are the same in capitals
    return Path(words[0]) if words and len(words) == 1 and suffix in (*TABLES, *WORKLOADS) else None


def _refuse_for_cases(options: dict[str, str | None]) -> None:
    """Refuse options that only a step has."""
    for name, value in options.items():
        if value:
            raise SpecError(f"predict: {name} is for a step, such as a saved workload; leave it out for cases")


def _predict_table(
    path: Path | None, out: Path | None, device: "Target", calibration: Path | None, *, energy: bool,
    how: "Setting", json: bool,
) -> None:  # fmt: skip
    """Write the table with its predictions; then name the rows without a prediction, if any."""
    from nearpeak.prediction.partial_tables import answered_predictions
    from nearpeak.prediction.power.energy_table import energy_table

    columns, usable = read_usable(path, "predict")
    columns.pop("refused", None)  # what an earlier prediction of the table said
    answered = answered_predictions(usable.table, device, how, calibration)
    predictions = answered.predictions
    added = {name: getattr(predictions, name) for name in ("bound_s", "predicted_s", "low_s", "high_s", "limiter")}
    if energy:
        drawn = energy_table(usable.table, device, predictions)
        added |= {name: getattr(drawn, name) for name in ("energy_j", "power_w", "energy_low_j", "energy_high_j")}
    _tell_differing([device])
    write_answered(out, "predict", columns, usable, added, answered.refused, plain=json)
    _tell_lacked(calibration, usable.table.groups, [device])


def _predict_workload(
    workload: "Workload", devices: list["Target"], question: _Question, execution: str, limit: "TimeLimit | None"
) -> None:
    """Print the expected time of a saved workload, or of a config.json's forward step; on a fabric its collectives."""
    if question.fabric:
        _predict_collectives(workload, devices, question)
        raise typer.Exit
    from nearpeak.bounds.step.step_analysis import analysis_of
    from nearpeak.prediction.step_expectation import with_expectations
    from nearpeak.reports.analysis_document import document_of
    from nearpeak.reports.expected_time_text import to_json

    analysis = with_expectations(
        analysis_of(workload, devices), workload, devices, execution=execution, file=question.calibration,
        setting=question.how,
    )  # fmt: skip
    verdicts = [] if limit is None else [limit_verdict(analysis, answer, limit) for answer in analysis.targets]
    if question.json:
        sys.stdout.write(f"{to_json(analysis)}\n")
        tell_verdicts(analysis, limit)
    else:
        shared.print_document(document_of(analysis, limit), why=question.why)
    _tell_differing(devices)
    _tell_lacked(question.calibration, [row.case for row in analysis.rows], devices)
    raise typer.Exit(exit_code(verdicts))


def _predict_case(words: list[str], devices: list["Target"], question: _Question) -> None:
    from nearpeak.ops import label_of
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.reports import prediction_report as report

    case = case_of(words, "predict")
    for device in devices:
        prediction = predict_case(case, device, question.how, question.calibration)
        empty = [f"{axis}=0" for axis, extent in case.axes if f"{axis}=0" in words and not extent]
        if empty and not prediction.bound_s:
            extents = ", ".join(empty)
            raise SpecError(f"predict: {extents}: the case is empty and runs nothing; give extents of at least 1")
        if question.json:
            sys.stdout.write(f"{report.to_json(case, device, prediction)}\n")
        else:
            narrower = _narrower(case, device, question)
            shared.print_document(report.document_of(label_of(case), device, prediction, narrower), why=question.why)
    _tell_lacked(question.calibration, [case], devices)


def _setting(is_corrected: bool, elsewhere: bool, sustained: bool | None, software: str) -> "Setting":
    """Return the conditions that the options ask for."""
    from nearpeak.prediction.calibration.source_spread import OTHER_SOURCE
    from nearpeak.prediction.kernel_model import Setting
    from nearpeak.prediction.software_ratio import checked_software

    return Setting(
        is_corrected=is_corrected, measured_by=OTHER_SOURCE if elsewhere else "", is_sustained=sustained,
        software=checked_software(software),
    )  # fmt: skip


def _refuse_without_collective(words: list[str] | None, file: Path | None, fabric: str, stride: int) -> None:
    """Refuse the options of clusters where they say nothing."""
    if not fabric and stride == 1:
        return
    if not words or (file is not None and (file.suffix not in WORKLOADS or stride != 1)):
        raise SpecError(
            "predict: --fabric and --stride are for one collective in words, --fabric also for captured workloads; "
            "leave them out for tables"
        )
    if not fabric:
        raise SpecError("predict: --stride needs --fabric, the network between nodes, e.g. --fabric ib400")


def _predict_between_nodes(
    words: list[str], devices: list["Target"], fabric: str, stride: int, question: _Question
) -> None:
    """Print the time of a collective between the nodes of a cluster."""
    from nearpeak.api.cluster_collectives import collective_cluster, predict_collective
    from nearpeak.ops import label_of
    from nearpeak.reports import collective_report as report

    case = case_of(words, "predict")
    for device in devices:
        modelled = predict_collective(case, device, fabric, stride)
        joined = collective_cluster(case, device, fabric, stride).fabric
        if question.json:
            sys.stdout.write(f"{report.to_json(case, device.name, joined, modelled)}\n")
        else:
            shared.print_document(report.document_of(label_of(case), device.name, joined, modelled), why=question.why)


def _predict_collectives(workload: "Workload", devices: list["Target"], question: _Question) -> None:
    """Print the collectives of a captured step with the tiers that their groups cross."""
    from nearpeak.api.cluster_collectives import workload_cluster, workload_collectives
    from nearpeak.reports import collective_report as report

    for device in devices:
        cluster = workload_cluster(workload, device, question.fabric)
        rows = report.collective_rows(workload, workload_collectives(workload, cluster))
        if question.json:
            sys.stdout.write("".join(f"{row.to_json(cluster)}\n" for row in rows))
        else:
            shared.print_document(report.rows_document(workload.name, cluster, rows))


def _narrower(case: "Case", device: "Target", question: _Question) -> "tuple[str, Prediction] | None":
    """Return the prediction of a case in the next narrower format; none where there is none."""
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.prediction.format_opportunities import narrower_case

    other = narrower_case(case)
    try:
        return None if other is None else (other[0], predict_case(other[1], device, question.how, question.calibration))
    except NotModelledError:
        return None


def _tell_differing(devices: list["Target"]) -> None:
    """Say on standard error which devices of the user's own only have the name of one that was measured."""
    from nearpeak.prediction.documented_target import differing
    from nearpeak.reports.prediction_report import own_device

    for device in devices:
        if names := differing(device):
            sys.stderr.write(f"{own_device(device.name, names)}\n")


def _tell_lacked(calibration: Path | None, cases: "Iterable[Case | CaseGroup]", devices: list["Target"]) -> None:
    """Report on standard error the cases for which the user's coefficient file was not read."""
    from nearpeak.prediction.partial_tables import missing_groups

    if calibration is None:
        return
    cases = list(cases)
    lacked = sorted({group for device in devices for group in missing_groups(calibration, cases, device)})
    if lacked:
        sys.stderr.write(f"{calibration} lacks {', '.join(lacked)}: the coefficients that ship answered\n")
