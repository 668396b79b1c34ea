"""Steady steps of a trace: queues, operators with bounds and expected times, and missing evidence."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.executed_run import NOTHING, ClockSample, Executed, KernelUse, QueueItem
from nearpeak.core.traces.timeline import Steps, Timeline
from nearpeak.core.traces.trace import CopyKind, EventKind, Family
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.traces import MISSING, Trace
from nearpeak.traces.executed import recording_advice
from nearpeak.traces.executed.case_join import can_be_joined, operators_of
from nearpeak.traces.executed.cpu_traces import with_cpu_limits, with_cpu_work
from nearpeak.traces.executed.host_device_queues import (  # fmt: skip
    MOST_UNLINKED,
    Queues,
    operator_rows,
    queues_of,
    unlinked_ratio,
)
from nearpeak.traces.executed.host_time import host_costs
from nearpeak.traces.executed.kernel_details import counters_of, rules_of, with_details
from nearpeak.traces.executed.lost_work import MOST_LOST, lost_launches
from nearpeak.traces.executed.step_sample import Sample, sample_of
from nearpeak.traces.executed.timeline_picture import picture_of
from nearpeak.traces.executed.trace_devices import working_devices
from nearpeak.traces.executed.trace_notes import cut_of, notes_of, of_bounds
from nearpeak.traces.reading.stream_order import EARLY
from nearpeak.traces.timeline.critical_path import critical_path
from nearpeak.traces.timeline.device_time import Communication, end_to_end, timelines
from nearpeak.traces.timeline.hierarchy import modules_of, time_by
from nearpeak.traces.timeline.host_operators import HOST_DEVICE
from nearpeak.traces.timeline.kernel_names import without_parameters
from nearpeak.traces.timeline.trace_steps import steps_of

_BRIEF = 60
_FLAGS = ("allow_tf32", "float32_matmul_precision", "cudnn_allow_tf32", "cudnn.allow_tf32")
"""Settings that decide on the units of products, where somebody stored them with the trace."""
_MOST_CALLED = 5_000
"""Operators of a step that are kept for an alignment."""


def executed_of(
    trace: Trace, target: Target | None = None, name: str = "", device: int | None = None
) -> Executed:  # fmt: skip
    """Return the steady steps of a device with bounds and expected times; of the CPU if it did all work.

    Args:
        device: number of the device; the busiest one unless given.

    Raises:
        SpecError: nothing in the trace is work of a device, nor of the CPU in its place.
    """
    if devices := working_devices(trace):
        executed = _executed(trace, devices[0] if device is None else device, target, name)
        return replace(executed, notes=(*executed.notes, *of_bounds(executed.operators)))
    if (cpu_trace := with_cpu_work(trace, certain=target is not None and target.kind == "cpu")) is None:
        reason = recording_advice.of_work(trace)
        if (cut := cut_of(trace)) is not None:
            reason = f"the file is cut off ({cut}), with no device events before the cut; copy it again"
        raise SpecError(f"{trace.header.source or 'trace'}: {reason}")
    return with_cpu_limits(_executed(cpu_trace, HOST_DEVICE, target, name), cpu_trace)


def _executed(trace: Trace, device: int, target: Target | None, name: str) -> Executed:
    """Return the steady steps of a device with bounds and expected times."""
    steps, sample, queues = _looked_at(trace, device, _marked(steps_of(trace)))
    operators, places = operators_of(trace, queues.items, queues.operator_rows, queues.kernel_names, target)
    joined = [item._replace(operator=place) for item, place in zip(queues.items, places, strict=True)]
    items = with_details(trace, joined)
    rows, slices = picture_of(trace, device, queues.windows)
    worked = np.array([item.event for item in queues.items if item.event != NOTHING], np.int64)
    module_ns = time_by(trace, worked, modules_of(trace, worked))
    header, spans = trace.header, sample.spans
    known = header.device(device)
    path = Counter[str]()
    for window in queues.windows if header.clock != "none" else ():
        path.update(critical_path(trace, window_ns=window).time_by_what_ns)
    sms = int(known.sm_count) if known is not None and known.sm_count else (target.sm_count if target else None)
    unmatched = sum(
        row.device_ns
        for row in items
        if row.kind in ("kernel", "graph") and (row.operator == NOTHING or not operators[row.operator].cases)
    )
    return Executed(
        name=name or Path(header.source).name, device_number=None if device == MISSING else device,
        format=header.format, device=known.name if known else "",
        target=target.name if target else "", step_count=len(spans), steps_found=steps.how if steps.steps else "",
        left_out_count=sum(step.warm_up for step in steps.steps),
        step_ns=sample.step_ns, items=items, latency_ns=queues.latency_ns,
        kernels=_kernels(trace, items, queues), operators=operators, timeline=_timeline(trace, device, queues),
        unmatched_ns=unmatched, missing=_missing(trace, steps, items, sample), losses=tuple(
            loss.line() for loss in header.losses), sm_count=sms,
            power_limit_w=target.power_w if target else None,
        clocks=_clocks(trace, queues), rank_count=header.world_size,
        notes=tuple(notes_of(trace, device, queues.windows, sample, steps.note)),
        path_ns=path,
        module_ns=module_ns if set(module_ns) - {""} else {},
        host=host_costs(trace, items, operators, queues.latency_ns, _bounds_of_items(sample, queues)),
        flags={name: str(header.metadata[name]) for name in _FLAGS if name in header.metadata},
        rows=rows, slices=slices,
        called=_called(trace, spans[0]), rules=rules_of(trace, items), counters=counters_of(trace, items),
    )  # fmt: skip


def _timeline(trace: Trace, device: int, queues: Queues) -> Timeline:
    """Return the timeline of a device in all windows, laid end to end."""
    parts = [
        line
        for window in queues.windows
        for line in timelines(trace, communication=Communication.ANY, window_ns=window)
        if line.device in (device, None)
    ]
    return end_to_end(parts, sum(end - begin for begin, end in queues.windows))


def _bounds_of_items(sample: Sample, queues: Queues) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each item the begin of its stretch of steps on the host, after earlier work, and its end."""
    begins = [begin for begin, _ in queues.windows]
    ends = [stretch[-1][1] for stretch in sample.stretches]
    counts = np.diff([*queues.first_items, len(queues.items)])
    return np.repeat(begins, counts), np.repeat(ends, counts)


def _looked_at(trace: Trace, device: int, steps: Steps) -> tuple[Steps, Sample, Queues]:
    """Return the steps, those looked into, and the work in them; the whole trace if there are none."""
    sample = sample_of(trace, steps.steady or steps.steps)
    rows: dict[int, int] = {}
    for stretch in sample.stretches:
        rows |= operator_rows(trace, can_be_joined, stretch[0][0], stretch[-1][1])
    queues = queues_of(trace, device, sample.stretches, rows, whole=not steps.steps)
    if any(item.event != NOTHING for item in queues.items) or not steps.steps:
        return steps, sample, queues
    note = f"the device is idle between the marks of {len(steps.steps)} steps: the whole trace is analysed"
    return _looked_at(trace, device, Steps(how="none", steps=(), note=note))


def _marked(steps: Steps) -> Steps:
    """Return marked steps only; a mere repetition may be a layer and counts as no step."""
    if not steps.steps or steps.how in ("marker", "range"):
        return steps
    name = steps.steps[0].name
    name = name if len(name) <= _BRIEF else name[: _BRIEF - 1] + "…"  # most of a kernel's template is left out
    return Steps(
        how="none",
        steps=(),
        note=f"no marks; {name} comes back {len(steps.steps)} times, as layers do too",
    )


def _kernels(trace: Trace, items: Sequence[QueueItem], queues: Queues) -> tuple[KernelUse, ...]:
    time: Counter[int] = Counter()
    count: Counter[int] = Counter()
    family: dict[int, str] = {}
    blocks: dict[int, int] = {}
    for item in items:
        if item.kernel == NOTHING:
            continue
        time[item.kernel] += item.device_ns
        count[item.kernel] += 1
        if item.kernel not in family:
            family[item.kernel] = Family(int(trace.family[item.event])).name.lower()
        if (grid := trace.at("grid", item.event)) is not None:
            blocks[item.kernel] = max(blocks.get(item.kernel, 0), int(np.prod(grid)))
    return tuple(
        KernelUse(
            name=name, family=family.get(number, "unknown"), unit=unit_of_kernel(name), launch_count=count[number],
            device_ns=time[number], block_count=blocks.get(number),
        )
        for number, name in enumerate(queues.kernel_names)
    )  # fmt: skip


def _missing(trace: Trace, steps: Steps, items: Sequence[QueueItem], sample: Sample) -> dict[str, str]:
    """Return what the trace does not say, and how to record it."""
    work, form = trace.device_rows(), trace.header.format
    unlinked, early = unlinked_ratio(trace, work), any(loss.kind.startswith(EARLY) for loss in trace.header.losses)
    rows = trace.rows(EventKind.KERNEL)
    lost, launched = lost_launches(trace, ((stretch[0][0], stretch[-1][1]) for stretch in sample.stretches))
    is_anonymous = bool(len(rows)) and len(np.unique(trace.name[rows])) == 1 and len(rows) > 50
    checks = {
        "host": (
            not trace.of_kind(EventKind.HOST_API).any(),
            f"no calls of the runtime: {recording_advice.of_host(form)}",
        ),
        "links": (
            unlinked > MOST_UNLINKED,
            f"{unlinked:.0%} of the device events have no recorded call: record whole steps"
            if not early
            else f"{unlinked:.0%} of the device events have no call that began before them: the clocks of host and"
            " device differ",
        ),
        "work": (
            lost > MOST_LOST * launched,
            f"{lost} of {launched} launches have no kernel in the file, so idle time may be lost work: record again,"
            " fewer steps at a time",
        ),
        "steps": (not steps.steps, f"{steps.note or 'no steps'}: mark steps (profiler.step(), NVTX ranges)"),
        "operators": (
            not trace.of_kind(EventKind.HOST_OP).any(),
            f"no operators of a framework: {recording_advice.of_operators(form)}",
        ),
        "shapes": ("shapes" not in trace.sparse, f"no shapes of operators: {recording_advice.of_shapes(form)}"),
        "copies": (not _says_memory(trace), "the source memory of copies is missing: newer profilers record it"),
        "bytes": ("bytes" not in trace.sparse, "the sizes of copies are missing"),
        "grid": ("grid" not in trace.sparse, "the grids of kernels are missing"),
        "clocks": (
            not any(_clock_columns(trace)),
            "no clocks or power: sample them during the run (nearpeak telemetry)",
        ),
        "phase": (
            not any(item.phase for item in items),
            "no range marks the optimizer step (Optimizer.step#…): its kernels are unknown",
        ),
        "names": (is_anonymous, "kernels have no names"),
        "ranges": (
            not _has_ranges(trace),
            "no ranges or Python frames: data loading on the host is not visible (with_stack=True, NVTX)",
        ),
    }
    return {name: text for name, (missing, text) in checks.items() if missing}


def _has_ranges(trace: Trace) -> bool:
    """Say whether ranges other than the markers of steps, or frames of Python, tell what the host does."""
    rows = trace.rows(EventKind.HOST_RANGE, EventKind.HOST_FRAME)
    marks = trace.name_table(lambda text: "ProfilerStep" in text)
    return len(rows) > 0 and not marks[trace.name[rows]].all()


def _says_memory(trace: Trace) -> bool:
    rows = trace.rows(EventKind.MEMCPY)
    if not len(rows) or "copy_kind" not in trace.sparse:
        return not len(rows)
    rows = rows[np.isin(trace.values("copy_kind", rows), (CopyKind.H2D, CopyKind.UNKNOWN))]
    return not len(rows) or bool((trace.values("source_memory", rows) > 0).all())


_CLOCK = re.compile(r"(sm|graphics|gfx|core).{0,3}(clock|freq)|clock.{0,8}mhz", re.IGNORECASE)
_POWER = re.compile(r"power|watt", re.IGNORECASE)


def _clock_columns(trace: Trace) -> tuple[list[str], list[str]]:
    """Return the rare fields of counters that hold clocks in MHz, and powers in W."""
    rows = trace.rows(EventKind.COUNTER)
    if not len(rows):
        return [], []
    has = [name for name, column in trace.sparse.items() if not column.text and np.isin(column.rows, rows).any()]
    return [name for name in has if _CLOCK.search(name)], [name for name in has if _POWER.search(name)]


def _clocks(trace: Trace, queues: Queues) -> tuple[ClockSample, ...]:
    clock, power = _clock_columns(trace)
    rows = trace.rows(EventKind.COUNTER)
    starts = [int(trace.start_ns[item.event]) if item.event != NOTHING else 0 for item in queues.items]
    begun = np.maximum.accumulate(np.array(starts, np.int64)) if starts else np.zeros(0, np.int64)
    samples = []
    for row in map(int, rows if clock else []):
        at = int(trace.start_ns[row])
        values = [trace.at(names[0], row) if names else None for names in (clock, power)]
        if at <= queues.windows[-1][1] and values[0] is not None:
            item = int(np.searchsorted(begun, at))
            samples.append(ClockSample(time_ns=at, item=item, clock_hz=float(values[0]) * 1e6, power_w=values[1]))
    return tuple(samples)


def _called(trace: Trace, span: tuple[int, int]) -> tuple[str, ...]:
    """Return the operators of a step that no other operator calls, with their shapes, in order."""
    rows = trace.rows(EventKind.HOST_OP)
    rows = rows[(trace.start_ns[rows] >= span[0]) & (trace.start_ns[rows] < span[1])]
    rows = rows[trace.outermost(rows)][:_MOST_CALLED]
    return tuple(f"{trace.name_of(row)} {trace.text_of('shapes', row)}".strip() for row in map(int, rows))


@cache
def _unit_rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    with Path(__file__).with_name("units.toml").open("rb") as file:
        table = tomllib.load(file)
    return tuple((re.compile("|".join(rule["patterns"]), re.IGNORECASE), rule["unit"]) for rule in table["rule"])


@cache
def unit_of_kernel(name: str) -> str:
    """Return `tensor`, `tf32` or `vector`; empty where the name does not tell.

    >>> unit_of_kernel("ampere_sgemm_128x64_tn"), unit_of_kernel("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32")
    ('vector', 'tf32')
    >>> unit_of_kernel("nvjet_tst_128x256_64x4_2x1_v_bz_TNT"), unit_of_kernel("my_kernel")
    ('tensor', '')
    """
    head = without_parameters(name)
    return next((unit for pattern, unit in _unit_rules() if pattern.search(head)), "")
