"""Command `nearpeak show ops|targets|fabrics|models|modes|runners`: entries of the catalogue and device files."""

import dataclasses
import json as jsonlib
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.api.catalogue import operator_record, usage_of
from nearpeak.cli.shared import completion
from nearpeak.cli.shared import options as shared

if TYPE_CHECKING:
    from nearpeak.core.edge.board_mode import BoardMode
    from nearpeak.core.work.target import Target
    from nearpeak.ops import Operator
    from nearpeak.targets.fabric_file import FabricFile

NAME = typer.Argument(None, help="Name of one entry, shown in full.")
OPERATOR = typer.Argument(None, help="Name of one operator, shown in full.", autocompletion=completion.operators)
DEVICE = typer.Argument(None, help="Name of one device, shown in full.", autocompletion=completion.targets)
ALL = typer.Option(False, "--all", help="List them one by one, with all that a row holds.")
_MAGNITUDES = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
"""Ends of counts of parameters, as names of models write them."""


# What begins a line of its own in a docstring: `Counts: …`, `kv, q: …`.
_STARTS = re.compile(r"\s*\w+(, \w+)*:(\s|$)")


def ops(name: str | None = OPERATOR, every: bool = ALL, json: bool = shared.JSON) -> None:
    """List the operators (--all: with their axes), or show one in full."""
    from nearpeak.ops import OPS

    operators = [OPS[name]] if name else [OPS[entry] for entry in OPS]
    if json:
        for operator in operators:
            sys.stdout.write(jsonlib.dumps(operator_record(operator)) + "\n")
    elif name:
        _print_operator(operators[0])
    elif not every:
        _print_beside([(entry.name,) for entry in operators], 3, "op")
        sys.stdout.write("More: axes and what each computes (--all); one in full: nearpeak show ops gemm\n")
    else:
        _print_rows([_operator_row(entry) for entry in operators], "op", "backward", "~axes", "~what")


def targets(name: str | None = DEVICE, every: bool = ALL, json: bool = shared.JSON) -> None:
    """List the devices (--all: with their rates), or show one in full with its sources."""
    from nearpeak.targets import TARGETS, target_of

    devices = [target_of(device_name) for device_name in ([name] if name else TARGETS.names())]
    if json:
        for device in devices:
            sys.stdout.write(jsonlib.dumps(dataclasses.asdict(device)) + "\n")
    elif name:
        _print_target(devices[0])
    elif not every:
        _print_beside([_short_target_row(device) for device in devices], 2, "target", "#memory", "#bandwidth")
        sys.stdout.write("More: devices and rates (--all); one in full: nearpeak show targets h100_sxm\n")
    else:
        heads = ("target", "~device", "strongest", "#rate", "#memory", "#bandwidth")
        _print_rows([_target_row(device) for device in devices], *heads)


def fabrics(name: str | None = NAME, json: bool = shared.JSON) -> None:
    """List the fabrics, nodes and networks between them, or show one in full with its sources."""
    from nearpeak.targets.clusters import fabric_names, shipped_fabric, stated_fabric

    files = [stated_fabric(name)] if name else [shipped_fabric(each) for each in fabric_names()]
    if json:
        for file in files:
            sys.stdout.write(jsonlib.dumps(dataclasses.asdict(file)) + "\n")
    elif name:
        _print_fabric(files[0])
    else:
        _print_rows([_fabric_row(file) for file in files], "fabric", "kind", "~what", "#rate", "~devices")


def models(every: bool = ALL, json: bool = shared.JSON) -> None:
    """List the models known by name: their published dimensions come with nearpeak (--all: other names of each)."""
    from nearpeak.frontends.huggingface.published_models import MODELS
    from nearpeak.frontends.huggingface.step_library import covers_model

    entries = [MODELS[name] for name in MODELS]
    captured_only = [model.name for model in entries if not covers_model(model.name)]
    if json:
        for model in entries:
            record = {
                "model": model.name,
                "title": model.title,
                "aliases": list(model.aliases),
                "parameters": model.parameters_count,
                "source": model.source,
                "shipped": model.name not in captured_only,
            }
            sys.stdout.write(jsonlib.dumps(record) + "\n")
    elif not every:
        short_rows = [
            (model.name, _magnitude(model.parameters_count) + (" *" if model.name in captured_only else "  "))
            for model in entries
        ]
        _print_beside(short_rows, 2, "model", "#parameters  ")
        sys.stdout.write("* captured by nearpeak[hf]; the steps of all others come with nearpeak\n")
        sys.stdout.write("More: titles and other names (--all), sources (--json)\n")
    else:
        rows = [
            (model.name, model.title + (f"; also {', '.join(model.aliases)}" if model.aliases else ""),
             f"{model.parameters_count:,}")
            for model in entries
        ]  # fmt: skip
        _print_rows(rows, "model", "~title", "#parameters")
        if captured_only:
            rest = f"The steps of all others come with nearpeak; captured by nearpeak[hf]: {', '.join(captured_only)}."
            sys.stdout.write(f"\n{textwrap.fill(rest, 80, break_on_hyphens=False)}\n")


def modes(
    board: str | None = typer.Argument(None, help="Board, e.g. jetson_orin_nano; all boards without it."),
    here: bool = typer.Option(False, "--here", help="Those of this machine's /etc/nvpmodel.conf, as it states them."),
    json: bool = shared.JSON,
) -> None:
    """List the power modes of boards: clocks, multiprocessors, memory rate, cores of the host, budget."""
    from nearpeak.targets.power_modes import board_modes, boards_with_modes, modes_here

    if here:
        for name, settings in modes_here():
            words = "; ".join(f"{key} {value}" for key, value in settings.items())
            sys.stdout.write(f"{jsonlib.dumps({'mode': name, **settings})}\n" if json else f"{name}: {words}\n")
        return
    board_rows = [(name, mode) for name in ([board] if board else boards_with_modes()) for mode in board_modes(name)]
    if json:
        for name, mode in board_rows:
            sys.stdout.write(jsonlib.dumps({"board": name, **dataclasses.asdict(mode)}) + "\n")
        return
    _print_rows([_mode_row(name, mode) for name, mode in board_rows], "board", "mode", "#GPU", "#SMs", "#memory",
                "host", "#budget")  # fmt: skip


def runners(json: bool = shared.JSON) -> None:
    """List the runners that can time a case: devices, phases, required packages, and packages missing here."""
    from nearpeak.measurement.runners import RUNNERS

    records = [_runner_record(name, RUNNERS[name]) for name in RUNNERS.names()]
    if json:
        sys.stdout.write("".join(jsonlib.dumps(record) + "\n" for record in records))
        return
    rows = [
        (record["write"], " ".join(record["devices"]), "yes" if "backward" in record["phases"] else "",
         ", ".join(f"{name} (missing)" if name in record["missing"] else name for name in record["needs"]))
         for record in records
    ]  # fmt: skip
    _print_rows(rows, "runner", "~devices", "gradient", "~needs")


def _runner_record(name: str, made: Any) -> dict[str, Any]:
    """Return what a runner declares of itself; one of another package may declare nothing."""
    import importlib.util

    from nearpeak.core.runs.runner_protocols import RunnerAbilities

    able = getattr(made, "abilities", RunnerAbilities(devices=()))
    return {
        "runner": name, "write": f"{name}:{able.argument}" if able.argument else name, "devices": list(able.devices),
        "phases": list(able.phases), "needs": list(able.needs),
        "missing": [package for package in able.needs if importlib.util.find_spec(package) is None],
    }  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = shared.group_of("Show the operators, devices, fabrics, models, power modes and runners.")
    group.command()(ops)
    group.command()(targets)
    group.command()(fabrics)
    group.command()(models)
    group.command()(modes)
    group.command()(runners)
    app.add_typer(group, name="show")


def _operator_row(operator: "Operator") -> tuple[str, ...]:
    signature = operator.signatures["forward"]
    axes = " ".join(axis for axis in signature.axes if axis not in signature.defaults)
    return (
        operator.name,
        "yes" if "backward" in operator.signatures else "",
        axes,
        operator.summary.removeprefix("Return the least work of "),
    )


def _mode_row(board: str, mode: "BoardMode") -> tuple[str, ...]:
    from nearpeak.units import show

    memory, host, budget = mode.bandwidth_bytes_per_s, mode.host_clock_hz, mode.budget_w
    return (
        board, mode.name, show(mode.clock_hz, "Hz"), str(mode.sm_count), "–" if memory is None else show(memory, "B/s"),
        "–" if host is None else f"{mode.host_count} × {show(host, 'Hz')}",
        "–" if budget is None else show(budget, "W"),
    )  # fmt: skip


def _print_operator(operator: "Operator") -> None:
    from nearpeak.ops.shared.definition.reference_constants import constants_of
    from nearpeak.reports.figure_text import hung

    names = (("ATen", operator.aten), ("ONNX", operator.onnx))
    about = _joined(operator.description.removeprefix("Return the "))
    out = [f"{operator.name}: {about[0]}", "", *usage_of(operator), *about[1:], ""]
    fixed = ", ".join(f"{name} = {value}" for name, value in constants_of(operator).items())
    out += [f"Constants: {fixed}", ""] if fixed else []
    out += [f"{dialect}: {', '.join(sorted(names_of_dialect)) or 'none'}" for dialect, names_of_dialect in names]
    sys.stdout.write("\n".join(hung(out)) + "\n")


def _joined(text: str) -> list[str]:
    """Return the lines of a docstring with each paragraph, and each `name: what` of a list, on one line."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1] and not lines[-1].endswith(":") and line and not _STARTS.match(line):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _target_row(device: "Target") -> tuple[str, ...]:
    from nearpeak.units import show

    unit = max(device.peaks, key=device.highest_flop_per_s)
    capacity, bandwidth = device.dram.capacity_bytes, device.dram.bandwidth_bytes_per_s
    return (
        device.name, device.title, unit, show(device.flop_per_s(unit), "FLOP/s"),
        "not stated" if capacity is None else show(capacity, "B"),
        "not stated" if bandwidth is None else show(bandwidth, "B/s"),
    )  # fmt: skip


def _short_target_row(device: "Target") -> tuple[str, ...]:
    from nearpeak.reports.brief_text import brief

    capacity, bandwidth = device.dram.capacity_bytes, device.dram.bandwidth_bytes_per_s
    return (
        device.name, "–" if capacity is None else brief(capacity, "B"),
        "–" if bandwidth is None else brief(bandwidth, "B/s"),
    )  # fmt: skip


def _fabric_row(file: "FabricFile") -> tuple[str, ...]:
    from nearpeak.units import show

    tier = file.fabric.tiers[0]
    rate = show(tier.bandwidth_bytes_per_s, "B/s")
    return file.fabric.name, file.kind, file.fabric.title, rate, " ".join(file.targets)


def _print_fabric(file: "FabricFile") -> None:
    from nearpeak.reports.figure_text import hung
    from nearpeak.units import show

    out = [f"{file.fabric.name}: {file.fabric.title} ({file.kind})"]
    for tier in file.fabric.tiers:
        size = f"{tier.device_count} devices" if tier.device_count else "any number of devices"
        adds = ", switches add up" if tier.reduces else ""
        out.append(
            f"  {tier.name}: {size}, {show(tier.bandwidth_bytes_per_s, 'B/s')} each way, of which collectives reach "
            f"{100 * tier.reached_ratio:.0f} %, {show(tier.latency_s, 's')} a hop{adds}"
        )
        out.append(f"    {tier.source}")
    if file.port_count:
        out += [f"  {file.port_count} network ports", f"    {file.port_source}"]
    if file.targets:
        out.append(f"  nodes of {', '.join(file.targets)}")
    sys.stdout.write("\n".join(hung(out)) + "\n")


def _print_target(device: "Target") -> None:
    from nearpeak.reports.figure_text import hung
    from nearpeak.units import show

    out = [f"{device.name}: {device.title}, {device.vendor} {device.architecture}, {device.sm_count} multiprocessors"]
    out.append(f"  highest clock {show(device.clock_hz, 'Hz')}: {device.clock_source}")
    for unit, peak in sorted(device.peaks.items()):
        mark = "" if peak.verified else " (derived or second-hand)"
        highest = show(device.highest_flop_per_s(unit), "FLOP/s")
        out.append(f"  {unit:13} {show(peak.flop_per_s, 'FLOP/s'):>13}, {highest} at the highest clock{mark}")
        out.append(f"    {peak.source}")
    for name, memory in (("dram", device.dram), ("l2", device.l2)):
        size = "size not stated" if memory.capacity_bytes is None else show(memory.capacity_bytes, "B")
        rate = memory.bandwidth_bytes_per_s
        out.append(f"  {name:13} {size}, {'rate not stated' if rate is None else show(rate, 'B/s')}")
        out.append(f"    {memory.source}")
    for name, link in device.links.items():
        out.append(f"  {name:13} {show(link.bandwidth_bytes_per_s, 'B/s')} each way: {link.source}")
    if device.partitions:
        out.append(f"  partitions and power modes: {', '.join(f'{device.name}:{part}' for part in device.partitions)}")
    sys.stdout.write("\n".join(hung(out)) + "\n")


def _magnitude(count: int) -> str:
    """Return a count of parameters as names of models write it.

    >>> _magnitude(671_026_404_352), _magnitude(999_885_952), _magnitude(11_683_584)
    ('671B', '1B', '11.7M')
    """
    size, end = next((size, end) for size, end in _MAGNITUDES if count >= 0.9995 * size or end == "M")
    return f"{count / size:.3g}{end}"


def _print_beside(entries: Sequence[tuple[str, ...]], beside_count: int, *heads: str) -> None:
    """Print short rows in several columns of rows, the order downwards."""
    depth = -(-len(entries) // beside_count)
    padded = [*entries, *[("",) * len(heads)] * (depth * beside_count - len(entries))]
    rows = [sum((padded[place + depth * column] for column in range(beside_count)), ()) for place in range(depth)]
    _print_rows(rows, *heads * beside_count)


def _print_rows(rows: Sequence[tuple[str, ...]], *heads: str) -> None:
    """Print a table; names stay whole, so that they can be copied, where a `~` before a heading says to fold others."""
    from nearpeak.reports.document import Document, Table, columns

    shared.print_document(Document(blocks=[Table(columns=columns(*heads), rows=rows)]))
