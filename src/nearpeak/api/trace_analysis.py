"""Analysis of a profiler trace file: read, joined to cases and bounds, searched for causes of lost time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import MappingProxyType

from nearpeak.api.questions import version
from nearpeak.api.trace_against_model import join_of, lines_of
from nearpeak.base.input_files import border
from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.core.traces.trace_difference import TraceDifference, UnpairedDevice
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.targets.device_names import target_of_gpu
from nearpeak.traces import FORMATS, Trace, read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.executed.execution_comparison import compare
from nearpeak.traces.executed.trace_devices import paired, working_devices
from nearpeak.traces.export.chrome_trace import write_chrome
from nearpeak.traces.export.parquet_trace import write_parquet
from nearpeak.traces.export.perfetto_trace import write_perfetto
from nearpeak.traces.findings import report_of
from nearpeak.traces.formats import begins
from nearpeak.traces.timeline.ranks import skew_of

WRITERS = {"perfetto": write_perfetto, "chrome": write_chrome, "parquet": write_parquet}
"""What writes a trace, by name of the format."""


def is_trace(path: Path) -> bool:
    """Say whether a file is of a trace format; a folder, a model name or a saved workload is not."""
    if not path.is_file():
        return False
    try:
        head = begins(path)
    except NearpeakError:
        return False
    return bool(head) and any(FORMATS[name].recognises(head) for name in FORMATS)


@border("trace")
def analyze_trace(
    path: Path, target: Target | None = None, model: Workload | None = None, *, ranks: Sequence[Path] = (),
    files: Mapping[str, Path] = MappingProxyType({}), unprofiled_step_s: float | None = None,
) -> TraceReport:  # fmt: skip
    """Return what was found in a trace.

    Args:
        target: device for bounds and expected times; the one that the trace names unless given.
        model: what was meant to run; operators of it that never ran are part of what is expected.
        ranks: traces of the other ranks of the same job, for who waits for whom.
        files: where the trace itself is written, by format: `perfetto` for ui.perfetto.dev, `chrome` JSON, `parquet`.
        unprofiled_step_s: what a step takes without the profiler, which slows the host.

    Raises:
        SpecError: the file is no trace, or has no device events; the time without the profiler is not positive.
    """
    if unprofiled_step_s is not None and not 0 < unprofiled_step_s < inf:
        raise SpecError(f"step without the profiler: {unprofiled_step_s!r} s is not positive and finite; e.g. 0.012")
    if not path.is_file():
        raise SpecError(f"{path}: not found")
    trace = read_trace(path)
    for name, file in files.items():
        WRITERS[name](trace, file)
    device = next(iter(working_devices(trace)), None)
    executed = replace(_executed(trace, target, path.name, device), unprofiled_step_s=unprofiled_step_s)
    if ranks:
        executed = replace(executed, skew=skew_of([trace, *map(read_trace, ranks)]))
    if model is None:
        return report_of(executed, version())
    join = join_of(executed, model, target)
    step_s = executed.window_ns * 1e-9 / executed.step_count
    executed = replace(executed, notes=(*lines_of(join, step_s), *executed.notes))
    unseen_ns = round(sum(call.expected_s or 0.0 for call in join.unseen) * executed.step_count * 1e9)
    return replace(report_of(executed, version(), unseen_ns, model.name), join=join)


def compare_traces(
    baseline: Path, candidate: Path, targets: Sequence[Target] = ()
) -> tuple[TraceDifference | UnpairedDevice, ...]:
    """Return what changed from a baseline to a candidate, device by device.

    Args:
        targets: device of the candidate and, where that is another, of the baseline; those that the traces name unless
            given.

    Raises:
        SpecError: a file is no trace, or has no device events.
    """
    after = _reports(candidate, targets[0] if targets else None)
    before = _reports(baseline, targets[1] if len(targets) > 1 else None, targets[0] if targets else None)
    pairs = paired(before, after)
    return tuple(
        compare(old, new) if old is not None and new is not None else _unpaired(old, new) for old, new in pairs
    )


def _unpaired(old: TraceReport | None, new: TraceReport | None) -> UnpairedDevice:
    report, where = (old, "baseline") if old is not None else (new, "candidate")
    if report is None:
        raise SpecError("traces: neither has a device")
    return UnpairedDevice(report.executed.device_number, report.executed.name, where)


def _reports(path: Path, target: Target | None, otherwise: Target | None = None) -> tuple[TraceReport, ...]:
    """Return a report for each device of a trace; of the CPU where it did all work.

    Args:
        otherwise: device where the trace names none.
    """
    if not path.is_file():
        raise SpecError(f"{path}: not found")
    trace = read_trace(path)
    reports = []
    for device in working_devices(trace) or (None,):
        executed = _executed(trace, target, path.name, device)
        if not executed.target and otherwise is not None:
            executed = _executed(trace, otherwise, path.name, device)
        reports.append(report_of(executed, version()))
    return tuple(reports)


def _executed(trace: Trace, target: Target | None, name: str, device: int | None) -> Executed:
    """Return the steps of a device, with the bounds of a target, or of the device that the trace names."""
    described = None if device is None else trace.header.device(device)
    if target is None and described is not None:
        target = target_of_gpu(described.name)
    return executed_of(trace, target, name, device)
