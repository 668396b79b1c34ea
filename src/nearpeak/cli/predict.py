"""`nearpeak predict`: the time that good software is expected to reach, for one case or a table of cases."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli._tables import read_cases, write_cases
from nearpeak.cli._words import case_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.target import Target


def predict(
    words: list[str] = typer.Argument(
        None,
        metavar="OP AXIS=EXTENT… | FILE.json",
        help="e.g. gemm m=4096 n=4096 k=4096 dtype=bf16",
    ),
    target: list[str] = shared.TARGET,
    cases: Path | None = typer.Option(None, "--cases", help="Table of cases (.csv, .jsonl, .parquet), or - for stdin."),
    out: Path | None = typer.Option(
        None, "--out", help="Write the table with bound_s, predicted_s and the like added."
    ),
    calibration: Path | None = typer.Option(None, "--calibration", help="Coefficients of your own (.toml) to use."),
    no_correction: bool = typer.Option(
        False, "--no-correction", help="Leave out the bounded correction on top of the scalars (the term library)."
    ),
    edits: list[str] = shared.EDITS,
    json: bool = shared.JSON,
) -> None:
    """Show the time that good software is expected to reach, with a 90 % interval and what it consists of.

    A table has the columns op, dtype and the operator's axes; bound_s, predicted_s, low_s, high_s and limiter are
    added.
    Every operator of the catalogue can be predicted on GPUs, some coarsely: the interval says how far to trust it.
    A saved workload ('nearpeak capture … -o FILE.json') gives the sum over its calls, and what is not in it; for a
    model itself use 'nearpeak analyze'.
    """
    devices = shared.targets_of(target, edits)
    shared.check_writable(out)
    if words and (cases is not None or out is not None):
        raise SpecError("predict: give one case in words, or --cases FILE with --out FILE, not both")
    if len(words or ()) == 1 and words[0].endswith(".json"):
        _predict_workload(words[0], devices, calibration, json=json, corrected=not no_correction)
        return
    if words:
        _predict_case(words, devices, calibration, json=json, corrected=not no_correction)
        return
    if cases is None and sys.stdin.isatty():
        raise SpecError(
            "predict: no case; e.g. nearpeak predict gemm m=4096 n=4096 k=4096 dtype=bf16 --target h100_sxm"
        )
    if len(devices) != 1:
        raise SpecError(f"predict: a table takes one target, got {len(devices)}; run once per target")
    from nearpeak.achievable import predict as predicted

    columns, table = read_cases(cases, "predict")
    found = predicted(table, devices[0], calibration=calibration, correction=not no_correction)
    added = {name: getattr(found, name) for name in ("bound_s", "predicted_s", "low_s", "high_s", "limiter")}
    write_cases(out, {**columns, **added})


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(predict)


def _predict_workload(
    path: str, devices: list["Target"], calibration: Path | None, *, json: bool, corrected: bool
) -> None:
    """Print the expected time of a saved workload, or of a config.json's forward step."""
    from nearpeak import api
    from nearpeak.predict._form import Setting
    from nearpeak.predict.step import with_predictions
    from nearpeak.report import _expected as report
    from nearpeak.theory.analysis import analysis_of

    found = with_predictions(
        analysis_of(api.capture(path), devices), devices, calibration, Setting(is_corrected=corrected)
    )
    plain = json or not shared.on_terminal()
    sys.stdout.write(f"{report.to_json(found) if plain else report.to_terminal(found)}\n")


def _predict_case(
    words: list[str], devices: list["Target"], calibration: Path | None, *, json: bool, corrected: bool
) -> None:
    from nearpeak.achievable import predict as predicted
    from nearpeak.ops import label_of
    from nearpeak.report import _prediction as report

    case = case_of(words, "predict")
    plain = json or not shared.on_terminal()
    for device in devices:
        found = predicted(case, device, calibration=calibration, correction=corrected)
        text = report.to_json(case, device, found) if plain else report.to_terminal(label_of(case), device, found)
        sys.stdout.write(f"{text}\n")
