"""Command `nearpeak score`: bounds and guarded speed-of-light scores of a definition's workloads and traces."""

import json as jsonlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import takes_capture_options
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.bound import Bound, Policy
    from nearpeak.core.work.target import Target
    from nearpeak.exchange.kernel_definition import Definition
    from nearpeak.exchange.trace_lines import Trace
    from nearpeak.exchange.workload_lines import WorkloadLine


@takes_capture_options()
def score(
    definition: Path = typer.Argument(help="Definition file of flashinfer-bench or SOL-ExecBench (.json)."),
    workloads: Path | None = typer.Option(None, "--workloads", "-w", help="Its workloads (.jsonl)."),
    traces: Path | None = typer.Option(None, "--traces", help="Traces of solutions (.jsonl)."),
    baseline: str | None = typer.Option(None, "--baseline", help="Solution to score against; else the reference."),
    clock: str | None = typer.Option(None, "--measured-at", help="Clock locked while measuring, e.g. '1.5 GHz'."),
    target: list[str] = shared.TARGET,
    edits: list[str] = shared.EDITS,
    policy: str = shared.POLICY,
    algorithm: str = shared.ALGORITHM,
    no_credit: bool = shared.NO_CREDIT,
    json: bool = shared.JSON,
    out: Path | None = typer.Option(None, "--out", "-o", help="Also write the rows as JSON lines."),
    options: CaptureOptions = CaptureOptions(),
) -> None:
    """Bound every workload of a kernel definition, and score the traces of its solutions.

    A score is given only where it means something: a time below the bound, a baseline below it, or clocks that differ
    are named instead. Capturing executes the reference, in a child process with a time and a memory limit.
    """
    from nearpeak.frontends.child_capture import capture_isolated

    shared.check_writable(out)
    devices = shared.targets_of(target, edits)
    read = _read(definition, workloads, traces)
    rows: list[dict[str, Any]] = []
    bounds = shared.policy_of(policy, algorithm, no_credit)
    frontend = "nearpeak.frontends.files.definition_capture:capture_definition"
    with shared.progress(f"capturing {definition} (its code runs in a child process)"):
        for line in read[1]:
            workload = capture_isolated(frontend, definition, options, line=None if line is None else dict(line.record))
            for device in devices:
                rows += _rows(read, line, workload, device, bounds, baseline, clock)
    text = "".join(jsonlib.dumps(row) + "\n" for row in rows)
    if out is not None:
        shared.write_whole(out, text)
    if json:
        sys.stdout.write(text)
    else:
        _print_table(read[0].name, rows)


def _read(
    definition: Path, workloads: Path | None, traces: Path | None
) -> tuple["Definition", list["WorkloadLine | None"], list["Trace"]]:
    """Return the definition, its workloads (`None`: a workload without variable axes), and the traces."""
    from nearpeak.exchange.kernel_definition import parse_definition
    from nearpeak.exchange.trace_lines import parse_traces
    from nearpeak.exchange.workload_lines import parse_workloads

    parsed = parse_definition(shared.text_of(definition), str(definition))
    every = parse_traces(shared.text_of(traces), str(traces)) if traces else []
    runs = [trace for trace in every if trace.definition == parsed.name]
    if traces and not runs:
        raise SpecError(f"{traces}: holds no trace of definition {parsed.name!r}")
    if workloads is not None:
        stated = parse_workloads(shared.text_of(workloads), str(workloads))
        lines = [trace for trace in stated if trace.definition in ("", parsed.name)]
        if not lines:
            raise SpecError(f"{workloads}: holds no workload of definition {parsed.name!r}")
        return parsed, list(lines), runs
    return parsed, list({run.workload.uuid: run.workload for run in runs}.values()) or [None], runs


def _rows(
    read: tuple["Definition", list["WorkloadLine | None"], list["Trace"]], line: "WorkloadLine | None", workload: Any,
    device: "Target", policy: "Policy", baseline: str | None, clock: str | None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the bound of one workload on one target, once alone or once per trace with its score."""
    from nearpeak.api.questions import version
    from nearpeak.bounds.step.step_bound import step_bound

    bound = step_bound(workload, device, policy)
    fields = {
        "definition": read[0].name, "workload": line.uuid if line else "", "target": device.name,
        "bound_s": bound.time_s, "limiter": bound.limiter, "assumptions": list(bound.assumptions),
        "uncovered": dict(bound.uncovered), "policy": asdict(policy), "version": version(),
    }  # fmt: skip
    runs = [run for run in read[2] if line is not None and run.workload.uuid == line.uuid]
    yield from [fields | _scored(run, runs, bound, device, baseline, clock) for run in runs] or [fields]


def _scored(
    run: "Trace", runs: list["Trace"], bound: "Bound", device: "Target", baseline: str | None, clock: str | None
) -> dict[str, Any]:
    """Return what the score of one trace adds to the bound's row."""
    from nearpeak.bounds.speed_of_light_score import sol_score
    from nearpeak.units import parse

    row: dict[str, Any] = {"solution": run.solution, "status": run.status}
    if run.time_s is None:
        return row
    times = [trace.time_s for trace in runs if trace.solution == baseline and trace.time_s is not None]
    if baseline is not None and not times:
        return row | {"time_s": run.time_s, "kind": "NO_BASELINE", "score": None}
    baseline_s = times[0] if times else run.reference_s
    locked_hz = None if clock is None else parse(clock, "Hz")
    score = sol_score(run.time_s, baseline_s or 0.0, bound, clock_hz=locked_hz, bound_clock_hz=device.clock_hz)
    record = {"kind": score.kind, "score": score.score_ratio, "bound_ratio": score.bound_ratio}
    return row | {"time_s": run.time_s, "baseline_s": baseline_s, **record}


def _print_table(name: str, rows: list[dict[str, Any]]) -> None:
    from nearpeak.reports.document import Document, Table, columns
    from nearpeak.units import show

    lines = []
    for row in rows:
        mark = "≥ " if row["uncovered"] else ""
        value = row.get("score")
        score = "" if value is None else f"{value:.3f} {'(headroom)' if row['kind'] == 'headroom' else ''}".strip()
        time = show(row["time_s"], "s") if "time_s" in row else row.get("status", "")
        lines.append(
            (row["workload"][:8], row["target"], mark + show(row["bound_s"], "s"), row.get("solution", ""), time,
             score or row.get("kind", ""))
        )  # fmt: skip
    heads = columns("workload", "~target", "#bound", "~solution", "#time", "#score")
    shared.print_document(Document(title=name, blocks=[Table(columns=heads, rows=lines)]))
