"""What `nearpeak simulate` runs and prints: cases, steps, streams, and devices that do not exist."""

import json as jsonlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_syntax import case_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.simulation import Run
    from nearpeak.core.work.case import Case
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.simulation.architecture_sweep import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is wanted of a simulation."""

    json: bool
    """Whether lines of JSON are printed instead of text."""
    trace: Path | None
    """File for a trace."""
    html: Path | None
    """File for a page."""
    governed: bool
    """Whether the clock follows from power and heat."""


def case_alone(case: "Case", device: "Target", show: Shown) -> None:
    """Show one case alone on a device."""
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.ops import label_of
    from nearpeak.reports import simulation_report as report
    from nearpeak.simulation.step_simulation import simulate_case

    run, bound_s = simulate_case(case, device, records=True, governed=show.governed), case_bound(case, device).time_s
    if show.json:
        text = report.to_json(label_of(case), device.name, run, bound_s)
    else:
        text = report.to_terminal(label_of(case), f"{device.title} ({device.name})", run, bound_s, device.sm_count)
    sys.stdout.write(f"{text}\n")
    _draw(show, f"{label_of(case)} on {device.title}", [("One kernel's waves", run)], device.sm_count)


def step_sum(workload: "Workload", device: "Target", show: Shown) -> None:
    """Show the sum of a step's kernels, each alone."""
    from nearpeak.simulation.step_simulation import simulate_step
    from nearpeak.units import show as unit

    found = simulate_step(workload, device)
    if show.json:
        record = {
            "name": workload.name, "step": workload.step, "target": device.name, "simulated_s": found.time_s,
            "energy_j": found.energy_j, "kernel_count": found.kernel_count, "cta_count": found.cta_count,
            "unmodelled": dict(found.unmodelled_count),
        }  # fmt: skip
        sys.stdout.write(jsonlib.dumps(record) + "\n")
        return
    energy = "" if found.energy_j is None or not found.time_s else (
        f"  energy     {unit(found.energy_j, 'J')}, on average {unit(found.energy_j / found.time_s, 'W')}\n"
    )  # fmt: skip
    sys.stdout.write(
        f"{workload.name} ({workload.step}) on {device.title} ({device.name}, simulated)\n"
        f"  time       {unit(found.time_s, 's')}, kernel after kernel in one stream\n{energy}"
        f"  kernels    {found.kernel_count:,}, thread blocks {found.cta_count:,}\n"
    )
    for reason, count in found.unmodelled_count.items():
        sys.stdout.write(f"  not in it  {count} calls: {reason}\n")


def step_timeline(workload: "Workload", device: "Target", launch: str, show: Shown) -> None:
    """Show a step run kernel by kernel, as the host submits it."""
    from nearpeak.reports import simulation_report as report
    from nearpeak.simulation.step_timeline import LAUNCHES, simulate_timeline

    found = simulate_timeline(workload, device, launch, governed=show.governed)
    label = f"{workload.name} ({workload.step}), {launch}"
    if show.json:
        sys.stdout.write(report.to_json(label, device.name, found.run, None) + "\n")
    else:
        title = f"{device.title} ({device.name})"
        sys.stdout.write(f"{report.to_terminal(label, title, found.run, None, device.sm_count)}\n")
        host = f", busy for {found.host_s * 1e3:.3g} ms" if found.host_s else ""
        sys.stdout.write(f"  host       {LAUNCHES[launch]}{host}\n")
        for reason, count in found.unmodelled_count.items():
            sys.stdout.write(f"  not in it  {count} calls: {reason}\n")
    _draw(show, f"{workload.name} ({workload.step}) on {device.title}", [(launch, found.run)], device.sm_count)


def _draw(show: Shown, title: str, runs: "list[tuple[str, Run]]", sm_count: int) -> None:
    """Write the files that are wanted."""
    from nearpeak.reports import heat_map, simulation_report

    if show.trace is not None:
        shared.write_whole(show.trace, simulation_report.to_trace(runs[0][1], sm_count))
    if show.html is not None:
        shared.write_whole(show.html, heat_map.to_html(title, runs, sm_count))


def sweep_devices(workload: "Workload", name: str, axes: list[str], workers: int, show: Shown) -> None:
    """Show a step on every combination of figures."""
    from nearpeak.reports import what_if_report as report
    from nearpeak.simulation.architecture_sweep import axes_of, sweep

    with _executor(workers) as executor:
        found = sweep(workload, name, axes_of(axes), executor=executor)
    title = f"{workload.name} ({workload.step}) on edits of {name}, simulated"
    if show.json:
        sys.stdout.write("".join(jsonlib.dumps(asdict(one)) + "\n" for one in found))
    else:
        sys.stdout.write(report.sweep_text(title, found) + "\n")
    if show.html is not None:
        shared.write_whole(show.html, report.sweep_html(title, found))


def tornado(workload: "Workload", name: str, workers: int, show: Shown) -> None:
    """Show which figure of a device a step gains most from."""
    from nearpeak.reports import what_if_report as report
    from nearpeak.simulation.architecture_sweep import sensitivity

    with _executor(workers) as executor:
        found = sensitivity(workload, name, executor=executor)
    title = f"{workload.name} ({workload.step}) on edits of {name}, simulated"
    if show.json:
        sys.stdout.write("".join(jsonlib.dumps(asdict(one)) + "\n" for one in found))
    else:
        sys.stdout.write(report.tornado_text(title, found) + "\n")
    if show.html is not None:
        shared.write_whole(show.html, report.tornado_html(title, found))


@contextmanager
def _executor(workers: int) -> "Iterator[Executor | None]":
    """Yield processes that run devices side by side; none for one after the other."""
    if workers == 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool


def share_streams(path: Path, device: "Target", policies: list[str], show: Shown) -> None:
    """Show how the streams of a file fare under each policy."""
    from nearpeak.reports import heat_map, sharing_report, simulation_report
    from nearpeak.simulation.scenario import POLICIES, share
    from nearpeak.simulation.scenario_file import scenario_of

    scenario = scenario_of(path, lambda words: case_of(words, "simulate"))
    drawn = show.html is not None or show.trace is not None
    if show.trace is not None and len(policies) != 1:
        raise SpecError("simulate: --trace of streams needs one --policy")
    found = [
        share(scenario, device, policy, records=drawn, governed=show.governed)
        for policy in policies or POLICIES
    ]  # fmt: skip
    runs = [(one.policy, one.run) for one in found if one.run is not None]
    if show.trace is not None:
        shared.write_whole(show.trace, simulation_report.to_trace(runs[0][1], device.sm_count))
    if show.html is not None:
        page = heat_map.to_html(f"{path.name} on {device.title}", runs, device.sm_count, sharing_report.to_html(found))
        shared.write_whole(show.html, page)
    if show.json:
        records = ({"target": device.name, **asdict(replace(one, run=None))} for one in found)
        sys.stdout.write("".join(jsonlib.dumps(one) + "\n" for one in records))
    else:
        sys.stdout.write(f"{sharing_report.to_terminal(device.title, found)}\n")
