"""`nearpeak simulate`: a case or a step on a simulated device, real or edited, kernel by kernel."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli._capture import workload_of
from nearpeak.cli._words import case_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.target import Target
    from nearpeak.core.workload import Workload


def simulate(
    words: list[str] = typer.Argument(
        metavar="OP AXIS=EXTENT… | MODEL | STREAMS.toml",
        help="e.g. gemm m=512 n=512 k=512 dtype=bf16, or resnet-50.",
    ),
    target: list[str] = shared.TARGET,
    edits: list[str] = shared.EDITS,
    step: str = shared.STEP,
    batch: int | None = shared.BATCH,
    sequence: int | None = shared.SEQUENCE,
    kv: int | None = shared.KV,
    dtype: str | None = shared.DTYPE,
    sweep: list[str] = typer.Option(
        [],
        "--sweep",
        help="A model: values of a figure to try, e.g. sm_count=66,132. Repeatable.",
    ),
    sensitivity: bool = typer.Option(False, "--sensitivity", help="A model: which figure buys most, each times 1.25."),
    trace: Path | None = typer.Option(None, "--trace", help="One case: write a trace that Perfetto opens (.json)."),
    html: Path | None = typer.Option(None, "--html", help="A case or streams: draw multiprocessors over time."),
    policy: list[str] = typer.Option(
        [], "--policy", help="Streams: streams, priorities, turns, masks or slices; all by default. Repeatable."
    ),
    json: bool = shared.JSON,
    timeout: float = shared.TIMEOUT,
    memory: str = shared.MEMORY,
) -> None:
    """Run a case, or all calls of a model step, on a simulated GPU; --set makes one that does not exist.

    Thread blocks are placed on multiprocessors, share units, caches and memory, and end; durations come from their
    phases and the device's resources. A file of streams shows how sensors with rates and deadlines share a device.
    """
    _refuse_unused(
        words, {"--sweep": sweep, "--sensitivity": sensitivity}, {"--trace": trace}, {"--html": html}, policy
    )
    devices = shared.targets_of(target, edits)
    shared.check_writable(trace)
    shared.check_writable(html)
    if len(words) == 1 and words[0].endswith(".toml"):
        _share(Path(words[0]), devices, policy, html, json=json)
        return
    if "=" in " ".join(words[1:]):
        _simulate_case(words, devices, (trace, html), json=json)
        return
    if len(words) > 1:
        raise SpecError("simulate: give one case (OP AXIS=EXTENT…), one model, or one file of streams")
    workload = workload_of(
        words[0], step=step, batch=batch, sequence=sequence, kv=kv, layers=None, dtype=dtype, autocast=None,
        fusion=None, guess_sizes=False, evaluation=False, shapes=[], axes=[], timeout_s=timeout, memory=memory,
    )  # fmt: skip
    for name, device in zip(target, devices, strict=True):
        if sweep or sensitivity:
            _what_if(workload, name, edits, sweep, json=json)
        else:
            _simulate_step(workload, device, json=json)


def _refuse_unused(
    words: list[str], models: Mapping[str, object], cases: Mapping[str, object], drawn: Mapping[str, object],
    policies: list[str],
) -> None:  # fmt: skip
    """Refuse options that what is simulated has no use for."""
    streams = len(words) == 1 and words[0].endswith(".toml")
    case = not streams and "=" in " ".join(words[1:])
    kind = "streams" if streams else "a case" if case else "a model"
    unused = {} if kind == "a model" else dict(models)
    unused |= {} if case else dict(cases)
    unused |= dict(drawn) if kind == "a model" else {}
    unused |= {} if streams else {"--policy": policies}
    for name, value in unused.items():
        if value:
            raise SpecError(f"simulate: {name} has no meaning for {kind}; see 'nearpeak simulate --help'")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(simulate)


def _simulate_case(
    words: list[str], devices: list["Target"], files: tuple[Path | None, Path | None], *, json: bool
) -> None:
    from nearpeak.ops import label_of
    from nearpeak.report import _occupancy
    from nearpeak.report import _simulation as report
    from nearpeak.sim.simulation import simulate_case
    from nearpeak.theory.case_bound import case_bound

    case = case_of(words, "simulate")
    trace, html = files
    if any(files) and len(devices) != 1:
        raise SpecError(f"simulate: a file takes one target, got {len(devices)}; run once per target")
    for device in devices:
        run, bound_s = simulate_case(case, device, records=True), case_bound(case, device).time_s
        if json or not shared.on_terminal():
            text = report.to_json(label_of(case), device.name, run, bound_s)
        else:
            text = report.to_terminal(label_of(case), f"{device.title} ({device.name})", run, bound_s, device.sm_count)
        sys.stdout.write(f"{text}\n")
        if trace is not None:
            shared.write_whole(trace, report.to_trace(run, device.sm_count))
        if html is not None:
            title = f"{label_of(case)} on {device.title}"
            shared.write_whole(html, _occupancy.to_html(title, [("simulated", run)], device.sm_count))


def _simulate_step(workload: "Workload", device: "Target", *, json: bool) -> None:
    import json as jsonlib

    from nearpeak.sim.simulation import simulate_step
    from nearpeak.units import show

    found = simulate_step(workload, device)
    if json or not shared.on_terminal():
        record = {
            "name": workload.name, "step": workload.step, "target": device.name, "simulated_s": found.time_s,
            "kernel_count": found.kernel_count, "cta_count": found.cta_count,
            "unmodelled": dict(found.unmodelled_count),
        }  # fmt: skip
        sys.stdout.write(jsonlib.dumps(record) + "\n")
        return
    sys.stdout.write(
        f"{workload.name} ({workload.step}) on {device.title} ({device.name}, simulated)\n"
        f"  time       {show(found.time_s, 's')}, kernel after kernel in one stream\n"
        f"  kernels    {found.kernel_count:,}, thread blocks {found.cta_count:,}\n"
    )
    for reason, count in found.unmodelled_count.items():
        sys.stdout.write(f"  not in it  {count} calls: {reason}\n")


def _what_if(workload: "Workload", name: str, edits: list[str], axes: list[str], *, json: bool) -> None:
    """Print the step on edited devices: every combination of a sweep, or each figure alone."""
    import json as jsonlib
    from dataclasses import asdict

    from nearpeak.sim import what_if
    from nearpeak.units import show

    if edits:
        raise SpecError("simulate: --sweep and --sensitivity state their own edits; leave --set out")
    found = what_if.sweep(workload, name, what_if.axes_of(axes)) if axes else what_if.sensitivity(workload, name)
    if json or not shared.on_terminal():
        sys.stdout.write("".join(jsonlib.dumps(asdict(one)) + "\n" for one in found))
        return
    sys.stdout.write(f"{workload.name} ({workload.step}) on edits of {name}, simulated\n")
    for one in found:
        mark = "*" if one.is_best else " "
        text = ", ".join(one.edits)
        sys.stdout.write(
            f"{mark} {text[:44]:44} {show(one.time_s, 's'):>10} {100 * (one.time_ratio - 1):+6.1f} %  "
            f"area {one.cost_ratio:.2f}\n"
        )
    if axes:
        sys.stdout.write("* nothing that costs no more is faster; area by assumed shares of the die\n")


def _share(path: Path, devices: list["Target"], policies: list[str], html: Path | None, *, json: bool) -> None:
    """Print how the streams of a file fare under each policy."""
    import json as jsonlib
    from dataclasses import asdict, replace

    from nearpeak.report._occupancy import to_html
    from nearpeak.report._sharing import to_terminal
    from nearpeak.sim.scenario import POLICIES, share
    from nearpeak.sim.scenario_file import streams_of

    streams = streams_of(path, lambda words: case_of(words, "simulate"))
    for device in devices:
        found = [share(streams, device, policy, records=html is not None) for policy in policies or POLICIES]
        if html is not None:
            runs = [(one.policy, one.run) for one in found if one.run is not None]
            shared.write_whole(html, to_html(f"{path.name} on {device.title}", runs, device.sm_count))
            found = [replace(one, run=None) for one in found]
        if json or not shared.on_terminal():
            sys.stdout.write("".join(jsonlib.dumps({"target": device.name, **asdict(one)}) + "\n" for one in found))
        else:
            sys.stdout.write(f"{to_terminal(device.title, found)}\n")
