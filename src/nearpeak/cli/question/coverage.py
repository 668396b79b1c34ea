"""Command `nearpeak coverage`: the parts of a model that a runner or engine converts, and the cost of the breaks."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.run.measure import LIMIT, MEMORY, timing_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import OPTIONS, input_values_of, shapes_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.conversion.converted_parts import Conversion


def coverage(
    model: Path = typer.Argument(help="ONNX file for onnxruntime and engines, problem file for torch_compile."),
    runner: str = typer.Option("", "--runner", help="Runner of this machine: onnxruntime or torch_compile."),
    engine: str = typer.Option("", "--engine", help="Engine that need not be installed, with version: tensorrt:10.1."),
    target: list[str] = shared.TARGET,
    table: Path | None = typer.Option(
        None, "--table", help="With --engine: capability table of your own, a TOML file."
    ),
    worth: str = typer.Option("0 s", "--worth", help="With --engine: time of a run that a plug-in must save to pay."),
    without: list[str] = typer.Option([], "--without", help="Operator type to treat as unsupported."),
    least: int = typer.Option(1, "--least", min=1, help="Nodes that a piece must have to be converted."),
    batch: int | None = OPTIONS["batch"][1],
    shapes: list[str] = OPTIONS["shapes"][1],
    input_values: list[str] = OPTIONS["input_values"][1],
    guess_sizes: bool = OPTIONS["guess_sizes"][1],
    edits: list[str] = shared.EDITS,
    html: Path | None = typer.Option(None, "--html", help="With --engine: write the report as one HTML page."),
    sarif: Path | None = typer.Option(None, "--sarif", help="With --engine: write nodes in question as SARIF."),
    limit: str = LIMIT,
    memory: str = MEMORY,
    json: bool = shared.JSON,
    why: bool = shared.WHY,
) -> None:
    """Show the nodes of a model that a backend converts, reasons for the others, and the cost of the graph breaks.

    With --runner the model runs on this machine, in a separate process. With --engine nothing runs: a capability table
    answers, and times are predicted for each --target.
    """
    if bool(runner) == bool(engine):
        raise SpecError("coverage: needs one of --runner (onnxruntime, torch_compile) and --engine (tensorrt:10.1)")
    if engine:
        worth_s = 0.0 if worth in ("0", "0 s", "0s") else shared.seconds_of(worth, "--worth")
        for path in (html, sarif):
            shared.check_writable(path)
        _tell_engine(model, engine, {
            "targets": shared.targets_of(target, edits) if target or edits else [], "table": table,
            "options": CaptureOptions(
                batch=batch, shapes=shapes_of(shapes), input_values=input_values_of(input_values),
                guess_sizes=guess_sizes,
            ), "without": tuple(without), "least_count": least, "worth_s": worth_s,
        }, (html, sarif), json=json, why=why)  # fmt: skip
        return
    step_options = {"--target": target, "--table": table, "--html": html, "--sarif": sarif, "--set": edits}
    if extra := [name for name, value in step_options.items() if value]:
        raise SpecError(f"{extra[0]}: goes with --engine; --runner {runner} runs on this machine")

    from nearpeak.api import conversion_coverage

    timing = timing_of("1 s", limit, "hot", 1, memory, check=False)
    with shared.progress("converting"):
        conversion = conversion_coverage.coverage(model, runner, timing, without=tuple(without), least_count=least)
    text = jsonlib.dumps(asdict(conversion) | {"flop_ratio": conversion.flop_ratio}) if json else _words(conversion)
    sys.stdout.write(f"{text}\n")


def _tell_engine(
    model: Path, engine: str, arguments: dict[str, Any], files: tuple[Path | None, Path | None], *, json: bool,
    why: bool,
) -> None:  # fmt: skip
    from nearpeak.api import conversion_coverage
    from nearpeak.reports.conversion import engine_coverage_report as report

    with shared.progress("reading the model"):
        answer = conversion_coverage.engine_coverage(model, engine, **arguments)
    html, sarif = files
    shared.write_page(html, report.document_of(answer))
    if sarif is not None:
        shared.write_whole(sarif, report.to_sarif(answer, str(model)))
    shared.tell(lambda: report.document_of(answer), lambda: report.to_json(answer), json=json, why=why)


def _formats(conversion: "Conversion") -> list[str]:
    """Return in which number formats products are formed, and what quantisation leaves beside them."""
    from nearpeak.units import counted

    parts = [
        f"{counted(count, 'product')} in {name}" + ("" if share is None else f" ({share:.1%} of the multiply-adds)")
        for name, count, share in conversion.executed
    ]
    lines = ["executed: " + ", ".join(parts)] if parts else []
    if conversion.loose_count:
        passes = counted(conversion.loose_count, "quantise or dequantise node")
        lines.append(f"{passes} left as passes of their own")
    return lines


def _words(conversion: "Conversion") -> str:
    from nearpeak.reports.figure_text import hung
    from nearpeak.units import counted, show

    share = "an unknown share" if conversion.flop_ratio is None else f"{conversion.flop_ratio:.1%}"
    nodes = f"{conversion.converted_count} of {conversion.node_count} nodes"
    where = ("", "")
    if conversion.runner == "torch_compile":  # a call may be in a graph that calls PyTorch for its arithmetic
        where = (" in its graphs", " in code that it makes or libraries that it prefers")
    lines = [f"{conversion.model} on {conversion.runner}: {nodes}{where[0]}, {share} of the arithmetic{where[1]}"]
    lines.append(f"  pieces: {conversion.fragment_count}; tensors across borders: {conversion.boundary_count}")
    if conversion.boundary_count and conversion.boundary_bytes is None:
        lines.append("  bytes across borders: unknown")
    elif conversion.boundary_bytes:
        cost = "" if conversion.boundary_s is None else f", {show(conversion.boundary_s, 's')} to copy them once"
        lines.append(f"  {show(conversion.boundary_bytes, 'B')} across borders{cost}")
    lines += [f"  {counted(count, 'node')} on {provider}" for provider, count in conversion.placed]
    lines += [f"  {line}" for line in _formats(conversion)]
    times = (
        ("as converted", conversion.converted_s), ("without conversion", conversion.unconverted_s),
        ("piece after piece", conversion.pieces_s),
    )  # fmt: skip
    lines += [f"  {what}: {show(time_s, 's')}" for what, time_s in times if time_s is not None]
    if conversion.pieces_error_ratio is not None and conversion.ledger:
        lines.append(f"  results in pieces differ by {conversion.pieces_error_ratio:.2g} of the largest")
    for row in conversion.ledger:
        shares = ((row.flop_ratio, "of the arithmetic"), (row.time_ratio, "of the time"))
        weight = ", ".join(f"{share:.1%} {what}" for share, what in shares if share is not None)
        lines.append(f"  {row.node} → {row.ran_on}{f' ({weight})' if weight else ''}: {row.reason}")
    return "\n".join(hung(lines))
