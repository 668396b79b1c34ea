"""Comparison of traces, with and without autocast, with the expected gain of mixed precision."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from nearpeak.core.answers.mixed_precision import Efficiency, MixedPrecision
from nearpeak.core.traces.executed_precision import ExecutedPrecision, PrecisionGap
from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.precision.attained_rates import efficiency_of
from nearpeak.precision.executed_formats import COMPILED_RATIO, precision_of
from nearpeak.precision.expected_times import BOUND, mixed_precision_of
from nearpeak.precision.gap_terms import precision_gap
from nearpeak.precision.verdict import realised_of
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.executed.trace_devices import working_devices

_AGAINST = {"autocast": "lowered", "unknown": "lowered", "converted": "converted"}
"""Which of three steps a trace is held against, by the mode in which it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One step in three precisions."""

    written: Workload
    """As written, in fp32."""
    lowered: Workload
    """Lowered by autocast."""
    converted: Workload
    """Converted as a whole."""


class ExpectedAndExecuted(NamedTuple):
    """Expected step and its difference from a trace."""

    expected: MixedPrecision
    gap: PrecisionGap
    efficiency: Efficiency
    step_counts: tuple[int, int]
    """Steps of the trace, and of the baseline's."""


def precision_of_file(
    path: Path, target: Target | None = None, device: int | None = None
) -> tuple[Executed, ExecutedPrecision]:  # fmt: skip
    """Return the steps of a trace and the precision in which their products ran.

    Args:
        device: number of the device looked into where the trace has it; else the busiest one.

    Raises:
        SpecError: the file is no trace, or has no device events.
    """
    if not path.is_file():
        raise SpecError(f"{path}: not found; a profiler's trace was wanted")
    trace = read_trace(path)
    executed = executed_of(trace, target, path.name, device if device in working_devices(trace) else None)
    return executed, precision_of(trace, executed)


def expected_and_executed(steps: Steps, target: Target, run: Path, baseline: Path | None = None) -> ExpectedAndExecuted:
    """Return the expectation, calibrated where a baseline's trace is given, and its difference from the run.

    Args:
        run: trace of the steps under autocast.
        baseline: trace of the same steps without it: its operators say what part of the documented rates is reached,
            its steps what was gained.
    """
    executed, precision = precision_of_file(run, target)
    efficiency, before = BOUND, None
    if baseline is not None:
        before = precision_of_file(baseline, target, executed.device_number)
        efficiency = efficiency_of(before[0], target)
    expected = mixed_precision_of(steps.written, steps.lowered, target, steps.converted, efficiency=efficiency)
    against = _AGAINST.get(precision.mode, "written")
    gap = precision_gap(executed, precision, against, getattr(steps, against), target, efficiency)
    if before is None:
        return ExpectedAndExecuted(expected, gap, efficiency, (executed.step_count, 1))
    modes = ("" if before[1].conflict else before[1].mode, precision.mode)
    compiled = max(precision.compiled_ratio, before[1].compiled_ratio) > COMPILED_RATIO
    of_mode = (
        replace(expected, lowered_s=expected.converted_s)
        if against == "converted" and expected.converted_s is not None
        else expected
    )
    realised = realised_of(of_mode, before[0], executed, modes, compiled=compiled)
    base = precision_gap(*before, "written", steps.written, target, efficiency).shortfall
    counts = executed.step_count, before[0].step_count
    return ExpectedAndExecuted(expected, replace(gap, realised=realised, base=base), efficiency, counts)
