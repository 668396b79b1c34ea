"""Command `nearpeak predict`: the expected time of tuned software for one case or a table of cases."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import TABLES
from nearpeak.cli.shared.case_syntax import case_of
from nearpeak.cli.shared.table_files import check_table, read_usable, write_answered
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nearpeak.core.work.case import Case
    from nearpeak.core.work.target import Target
    from nearpeak.ops.shared.tables.case_table import CaseGroup
    from nearpeak.prediction.kernel_model import Setting

WORKLOADS = (".json", ".txt", ".log", ".h", ".toml", ".onnx", ".pt2", ".py")
"""Suffixes of files whose calls are summed."""


def predict(
    words: list[str] = typer.Argument(
        None,
        metavar="OP AXIS=EXTENT… | FILE",
        help="e.g. gemm m=4096 n=4096 k=4096 dtype=bf16; a table, a suite, a saved workload, an operator log.",
    ),
    target: list[str] = shared.TARGET,
    cases: Path | None = typer.Option(None, "--cases", help="Table of cases (.csv, .jsonl, .parquet), or - for stdin."),
    out: Path | None = typer.Option(
        None, "--out", help="Write the table with bound_s, predicted_s and the like added."
    ),
    energy: bool = typer.Option(False, "--energy", help="Tables: add energy_j, power_w, energy_low_j, energy_high_j."),
    calibration: Path | None = typer.Option(None, "--calibration", help="Your coefficient file (.toml)."),
    no_correction: bool = typer.Option(
        False, "--no-correction", help="Leave out the bounded correction on top of the coefficients (the term library)."
    ),
    elsewhere: bool = typer.Option(
        False,
        "--elsewhere",
        help="Intervals for software and timing other than those behind the coefficients, such as yours.",
    ),
    edits: list[str] = shared.EDITS,
    json: bool = shared.JSON,
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
    from nearpeak.prediction.calibration.source_spread import OTHER_SOURCE
    from nearpeak.prediction.kernel_model import Setting

    devices = shared.targets_of(target, edits)
    check_table(out)
    suffix = Path((words or [""])[0]).suffix
    suffix = suffix.lower() if suffix.lower() in TABLES else suffix  # suffixes of tables are the same in capitals
    file = Path(words[0]) if len(words or ()) == 1 and suffix in (*TABLES, *WORKLOADS) else None
    if words and cases is not None:
        raise SpecError("predict: give one case in words, or --cases FILE with --out FILE, not both")
    if words and (file is None or file.suffix in WORKLOADS) and (out is not None or energy):
        raise SpecError("predict: --out and --energy add columns to a table of cases; give one, e.g. --cases FILE")
    how = Setting(is_corrected=not no_correction, measured_by=OTHER_SOURCE if elsewhere else "")
    if file is not None and file.suffix in WORKLOADS:
        _predict_workload(str(file), devices, calibration, json=json, how=how)
    elif words and file is None:
        _predict_case(words, devices, calibration, json=json, how=how)
    elif file is None and cases is None and sys.stdin.isatty():
        raise SpecError(
            "predict: no case; e.g. nearpeak predict gemm m=4096 n=4096 k=4096 dtype=bf16 --target h100_sxm"
        )
    elif len(devices) != 1:
        raise SpecError(f"predict: a table takes one target, got {len(devices)}; run once per target")
    else:
        _predict_table(cases or file, out, devices[0], calibration, energy=energy, how=how, json=json)


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
    path: str, devices: list["Target"], calibration: Path | None, *, json: bool, how: "Setting"
) -> None:
    """Print the expected time of a saved workload, or of a config.json's forward step."""
    from nearpeak.api import questions
    from nearpeak.bounds.step.step_analysis import analysis_of
    from nearpeak.prediction.step_time import with_predictions
    from nearpeak.reports import expected_time_text as report

    analysis = with_predictions(analysis_of(questions.capture(path), devices), devices, calibration, how)
    shared.tell(lambda: report.document_of(analysis), lambda: report.to_json(analysis), json=json)
    _tell_differing(devices)
    _tell_lacked(calibration, [row.case for row in analysis.rows], devices)


def _predict_case(
    words: list[str], devices: list["Target"], calibration: Path | None, *, json: bool, how: "Setting"
) -> None:
    from nearpeak.ops import label_of
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.reports import prediction_report as report

    case = case_of(words, "predict")
    for device in devices:
        prediction = predict_case(case, device, how, calibration)
        shared.tell(
            partial(report.document_of, label_of(case), device, prediction),
            partial(report.to_json, case, device, prediction), json=json,
        )  # fmt: skip
    _tell_lacked(calibration, [case], devices)


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
