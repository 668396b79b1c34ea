"""Command `nearpeak coverage`: the parts of a model that a runner converts, and the cost of the graph breaks."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.run.measure import LIMIT, MEMORY, timing_of
from nearpeak.cli.shared import options as shared

if TYPE_CHECKING:
    from nearpeak.conversion.converted_parts import Conversion


def coverage(
    model: Path = typer.Argument(help="ONNX file for onnxruntime, problem file for torch_compile."),
    runner: str = typer.Option(..., "--runner", help="onnxruntime or torch_compile."),
    without: list[str] = typer.Option([], "--without", help="Operator type to treat as unsupported."),
    least: int = typer.Option(1, "--least", min=1, help="Nodes that a piece must have to be converted."),
    limit: str = LIMIT,
    memory: str = MEMORY,
    json: bool = shared.JSON,
) -> None:
    """Show the nodes of a model that a runner converts, reasons for the others, and the cost of the graph breaks.

    The model runs in a separate process.
    """
    from nearpeak.api import conversion_coverage

    timing = timing_of("1 s", limit, "hot", 1, memory, check=False)
    with shared.progress("converting"):
        conversion = conversion_coverage.coverage(model, runner, timing, without=tuple(without), least_count=least)
    text = jsonlib.dumps(asdict(conversion) | {"flop_ratio": conversion.flop_ratio}) if json else _words(conversion)
    sys.stdout.write(f"{text}\n")


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
