"""Command `nearpeak telemetry`: sensor readings, watched, recorded or imported from another tool's log."""

import json as jsonlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.run.measure import rate_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.options import seconds_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.runs.telemetry import Telemetry


def telemetry(
    duration: str = typer.Option("10 s", "--for", help="Recording time, e.g. '10 s'."),
    rate: str = typer.Option(
        "10", "--rate", help="Readings per second, 0.1 to 1000; slow sensors are read less often."
    ),
    source: list[str] = typer.Option([], "--source", help="Only these sources; all by default. Repeatable."),
    out: Path | None = typer.Option(None, "--out", help="Keep every reading in this file (.json)."),
    log: Path | None = typer.Option(
        None,
        "--import",
        help="Read a power log instead: MLPerf or PTDaemon, tegrastats, nvidia-smi, dcgmi, rocm-smi, Zeus, a table, or "
        "what --out wrote.",
    ),
    interval: str = typer.Option(
        "", "--interval", help="--import: time between lines that do not state it, e.g. '1 s'."
    ),
    json: bool = shared.JSON,
) -> None:
    """Show the readings of the machine's sensors: energy with an error bound, power, clocks, temperatures, load.

    A figure that a sensor does not report is shown as unknown with the reason, never as 0.
    """
    shared.check_writable(out)
    if log is None and interval:
        raise SpecError("--interval: states the time between lines of a log; give --import as well, or --rate")
    if log:
        from nearpeak.exchange.power_logs import read_log

        recording = read_log(log, seconds_of(interval, "--interval") if interval else None)
    else:
        recording = _watched(duration, rate, source)
    from nearpeak.reports.telemetry_report import telemetry_document

    shared.tell(lambda: telemetry_document(recording), lambda: jsonlib.dumps(_record(recording)), json=json)
    if out is not None:
        shared.write_whole(out, jsonlib.dumps(_record(recording)) + "\n")


def _watched(duration: str, rate: str, source: list[str]) -> "Telemetry":
    from nearpeak.measurement.telemetry.sampler_client import Sampler

    length_s, rate_hz = seconds_of(duration, "--for"), rate_of(rate, "--rate")
    with Sampler(rate_hz, source) as sampler, shared.progress("watching"):
        begin_ns = time.monotonic_ns()
        try:
            time.sleep(length_s)
        except KeyboardInterrupt:
            sys.stderr.write("stopped; what was read until now:\n")
        return sampler.window(begin_ns, time.monotonic_ns())


def _record(recording: "Telemetry") -> object:
    from nearpeak.exchange.telemetry_lines import RECORDING, telemetry_record

    return {**RECORDING.head(), **telemetry_record(recording)}
