"""A trace file in, a report out: read, laid beside theory, and looked through for causes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nearpeak.analyze.findings import report_of
from nearpeak.api import version
from nearpeak.core.case import Case
from nearpeak.core.executed import Executed
from nearpeak.core.finding_report import TraceReport
from nearpeak.core.target import Target
from nearpeak.core.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.executed.devices import target_of_device
from nearpeak.executed.queues import busiest_device
from nearpeak.executed.reading import executed_of
from nearpeak.trace import FORMATS, Trace, read_trace
from nearpeak.trace._stream import head_of
from nearpeak.trace.export_perfetto import write_perfetto
from nearpeak.trace.ranks import skew_of


def is_trace(path: Path) -> bool:
    """Say whether a file is of a trace format; a folder, a model name or a saved workload is not."""
    if not path.is_file():
        return False
    try:
        head = head_of(path)
    except NearpeakError:
        return False
    return bool(head) and any(FORMATS[name].recognises(head) for name in FORMATS)


def analyze_trace(
    path: Path, target: Target | None = None, model: Workload | None = None, *, ranks: Sequence[Path] = (),
    perfetto: Path | None = None,
) -> TraceReport:  # fmt: skip
    """Return what was found in a trace.

    Args:
        target: device for bounds and expected times; the one that the trace names unless given.
        model: what was meant to run; operators of it that never ran are part of what is expected.
        ranks: traces of the other ranks of the same job, for who waits for whom.
        perfetto: file to which the trace is written for ui.perfetto.dev.

    Raises:
        SpecError: the file is no trace, or has no device events.
    """
    if not path.is_file():
        raise SpecError(f"{path}: not found")
    trace = read_trace(path)
    if perfetto is not None:
        write_perfetto(trace, perfetto)
    executed = executed_of(*_with_target(trace, target), path.name)
    if ranks:
        executed = replace(executed, skew=skew_of([trace, *map(read_trace, ranks)]))
    if model is None:
        return report_of(executed, version())
    return report_of(executed, version(), _unseen_ns(executed, model, target), model.name)


def _with_target(trace: Trace, target: Target | None) -> tuple[Trace, Target | None]:
    if target is not None:
        return trace, target
    device = busiest_device(trace)
    return trace, target_of_device(next((one for one in trace.header.devices if one.index == device), None))


def _unseen_ns(executed: Executed, model: Workload, target: Target | None) -> int:
    """Return the expected time of the model's calls, in all steps, that never ran."""
    from nearpeak.api import target as target_named
    from nearpeak.predict.prediction import predict_case

    device = target or (target_named(executed.target) if executed.target else None)
    if device is None:
        raise SpecError(f"{executed.name}: the device is not known; name it with --target")
    ran: dict[Case, int] = {}
    for operator in executed.operators:
        for case in operator.cases:
            ran[case] = ran.get(case, 0) + operator.call_count
    total = 0.0
    for case, count in model.case_counts().items():
        left = count * executed.step_count - ran.get(case, 0)
        try:
            total += max(0, left) * predict_case(case, device).time_s
        except NearpeakError:
            continue
    return round(total * 1e9)
