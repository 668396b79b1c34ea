"""Runs and output of `nearpeak simulate`: cases, steps, streams, and hypothetical devices."""

import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.api.case_words import case_of
from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.simulation import Run
    from nearpeak.core.work.case import Case
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.reports.document import Document
    from nearpeak.simulation.architecture_sweep import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Output options of a simulation."""

    json: bool
    """Whether lines of JSON are printed instead of text."""
    trace: Path | None
    """File for a trace."""
    html: Path | None
    """File for a page."""
    governed: bool
    """Whether the clock follows from power and heat."""
    why: bool = False
    """Whether text says what the answer rests on."""


def case_alone(case: "Case", device: "Target", show: Shown) -> None:
    """Show one case alone on a device."""
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.ops import label_of
    from nearpeak.reports import simulation_report as report
    from nearpeak.simulation.step_simulation import simulate_case

    run, bound_s = simulate_case(case, device, records=True, governed=show.governed), case_bound(case, device).time_s
    title = f"{device.title} ({device.name})"
    if show.json:
        sys.stdout.write(f"{report.to_json(label_of(case), device.name, run, bound_s)}\n")
    _deliver(
        show, lambda: report.document_of(label_of(case), title, run, bound_s, device.sm_count), run, device.sm_count
    )


def step_sum(workload: "Workload", device: "Target", show: Shown) -> None:
    """Show the sum of a step's kernels, each alone."""
    from nearpeak.api.questions import bound
    from nearpeak.reports.simulation_report import step_document
    from nearpeak.simulation.step_simulation import simulate_step

    simulated = simulate_step(workload, device)
    if show.json:
        record = {
            "name": workload.name, "step": workload.step, "target": device.name, "simulated_s": simulated.time_s,
            "energy_j": simulated.energy_j, "kernel_count": simulated.kernel_count, "cta_count": simulated.cta_count,
            "unmodelled": dict(simulated.unmodelled_count),
        }  # fmt: skip
        sys.stdout.write(jsonlib.dumps(record) + "\n")
        return
    times: dict[str, float] = {}
    for call, time_s in zip(workload.calls, simulated.call_s, strict=True):
        if call.case is not None and time_s is not None:
            times[call.case.op] = times.get(call.case.op, 0.0) + time_s * call.call_count
    figures = [
        ("energy", simulated.energy_j), ("kernels", simulated.kernel_count), ("thread blocks", simulated.cta_count),
    ]  # fmt: skip
    document = step_document(
        workload, f"{device.title} ({device.name})", simulated.time_s, bound(workload, device).time_s, times,
        figures, simulated.unmodelled_count,
    )  # fmt: skip
    shared.print_document(document, why=show.why)


def _left_out(counts: "Mapping[str, int]") -> list[tuple[str, str]]:
    return [("not in it", f"{count} calls: {reason}") for reason, count in counts.items()]


def step_timeline(workload: "Workload", device: "Target", launch: str, show: Shown) -> None:
    """Show a step run kernel by kernel, as the host submits it."""
    from nearpeak.api.questions import bound
    from nearpeak.reports import simulation_report as report
    from nearpeak.simulation.step_timeline import LAUNCHES, simulate_timeline
    from nearpeak.units import show as unit

    simulated = simulate_timeline(workload, device, launch, governed=show.governed)
    label = f"{workload.name} ({workload.step}), {launch}"
    if show.json:
        sys.stdout.write(report.to_json(label, device.name, simulated.run, None) + "\n")
    host = f", busy for {unit(simulated.host_s, 's')}" if simulated.host_s else ""
    more = [("host", f"{LAUNCHES[launch]}{host}"), *_left_out(simulated.unmodelled_count)]
    title = f"{device.title} ({device.name})"
    _deliver(
        show,
        lambda: report.document_of(
            label, title, simulated.run, bound(workload, device).time_s, device.sm_count, more, workload
        ),
        simulated.run,
        device.sm_count,
    )


def _deliver(show: Shown, document_of: "Callable[[], Document]", run: "Run | None" = None, sm_count: int = 0) -> None:
    """Print a report as text unless JSON was requested, and write the requested files."""
    from nearpeak.reports.simulation_report import to_trace

    if show.trace is not None and run is not None:
        shared.write_whole(show.trace, to_trace(run, sm_count))
    if show.json and show.html is None:
        return
    document = document_of()
    if not show.json:
        shared.print_document(document, why=show.why)
    shared.write_page(show.html, document)


def sweep_devices(workload: "Workload", name: str, axes: list[str], workers: int, show: Shown) -> None:
    """Show a step on every combination of figures."""
    from nearpeak.reports import what_if_report as report
    from nearpeak.simulation.architecture_sweep import axes_of, sweep

    with _executor(workers) as executor:
        variants = sweep(workload, name, axes_of(axes), executor=executor)
    title = f"{workload.name} ({workload.step}) on edits of {name}, simulated"
    if show.json:
        sys.stdout.write("".join(jsonlib.dumps(asdict(variant)) + "\n" for variant in variants))
    _deliver(show, lambda: report.sweep_document(title, variants))


def tornado(workload: "Workload", name: str, workers: int, show: Shown) -> None:
    """Show which figure of a device a step gains most from."""
    from nearpeak.reports import what_if_report as report
    from nearpeak.simulation.architecture_sweep import sensitivity

    with _executor(workers) as executor:
        effects = sensitivity(workload, name, executor=executor)
    title = f"{workload.name} ({workload.step}) on edits of {name}, simulated"
    if show.json:
        sys.stdout.write("".join(jsonlib.dumps(asdict(effect)) + "\n" for effect in effects))
    _deliver(show, lambda: report.tornado_document(title, effects))


@contextmanager
def _executor(workers: int) -> "Iterator[Executor | None]":
    """Yield a process pool that runs devices in parallel; `None` to run them in sequence."""
    if workers == 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from nearpeak.base.isolation.process_tree import safe_imports

    with safe_imports(), ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool


def share_streams(path: Path, device: "Target", policies: list[str], show: Shown) -> None:
    """Show how the streams of a file fare under each policy."""
    from nearpeak.reports import sharing_report as report
    from nearpeak.simulation.scenario import POLICIES, share
    from nearpeak.simulation.scenario_file import scenario_of

    scenario = scenario_of(path, lambda words: case_of(words, "simulate"))
    drawn = show.html is not None or show.trace is not None
    if show.trace is not None and len(policies) != 1:
        raise SpecError("simulate: --trace of streams needs one --policy")
    runs = [
        share(scenario, device, policy, records=drawn, governed=show.governed)
        for policy in policies or POLICIES
    ]  # fmt: skip
    if show.json:
        records = ({"target": device.name, **asdict(replace(record, run=None))} for record in runs)
        sys.stdout.write("".join(jsonlib.dumps(record) + "\n" for record in records))
    title = f"{path.name} on {device.title}"
    _deliver(show, lambda: report.document_of(title, runs, device.sm_count), runs[0].run, device.sm_count)
