"""Trace files of flashinfer-bench and SOL-ExecBench: outcome and times of a solution on a workload, one per line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.exchange.workload_lines import WorkloadLine, json_lines, parse_workload

PASSED = "PASSED"
NUMERICAL = "INCORRECT_NUMERICAL"

STATUSES = (
    "COMPILE_ERROR", "INCORRECT_DTYPE", NUMERICAL, "INCORRECT_SHAPE", "INVALID_REFERENCE", PASSED, "REWARD_HACK",
    "RUNTIME_ERROR", "TIMEOUT",
)  # fmt: skip
"""Outcomes as the files call them."""
_ERRORS = ("max_relative_error", "max_absolute_error")
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One run of one solution on one workload."""

    definition: str
    """Name of the definition."""
    solution: str
    """Name of the solution."""
    workload: WorkloadLine
    """Workload."""
    status: str
    """Outcome as the files call it."""
    time_s: float | None = None
    """Time of the solution; only of one that passed."""
    reference_s: float | None = None
    """Time of the reference."""
    errors: Mapping[str, Any] = field(default_factory=dict)
    """Largest relative and absolute error (floats) by the files' names; not finite if the result is not."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The other entries of the evaluation, including those that nearpeak does not interpret."""


def parse_traces(text: str, where: str) -> list[Trace]:
    """Return the traces of a file; workloads among them, which have no evaluation, are left out.

    Raises:
        SpecError: a line is malformed, or has figures that its status excludes.
    """
    return [_trace(data, place) for place, data in json_lines(text, where) if data.get("evaluation") is not None]


def _trace(data: Mapping[str, Any], where: str) -> Trace:
    evaluation = data["evaluation"]
    for key in ("definition", "solution"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise SpecError(f"{where}: a trace with an evaluation names its {key}")
    status = evaluation.get("status") if isinstance(evaluation, dict) else None
    if status not in STATUSES:
        raise SpecError(f"{where}: status {status!r} is not one of {', '.join(STATUSES)}")
    times = _part(evaluation, "performance", status == PASSED, where)
    errors = _part(evaluation, "correctness", status in (PASSED, NUMERICAL), where)
    record = {key: value for key, value in evaluation.items() if key not in ("performance", "correctness")}
    return Trace(
        definition=data["definition"], solution=data["solution"], workload=parse_workload(data, where),
        status=status, record=record,
        time_s=_seconds(times, "latency_ms", where), reference_s=_seconds(times, "reference_latency_ms", where),
        errors={} if errors is None else {key: _error(errors, key, where) for key in _ERRORS},
    )  # fmt: skip


def _part(evaluation: Mapping[str, Any], key: str, wanted: bool, where: str) -> Mapping[str, Any] | None:
    part = evaluation.get(key)
    if (part is not None) != wanted:
        raise SpecError(f"{where}: status {evaluation['status']} {'needs' if wanted else 'excludes'} {key!r}")
    return part


def _seconds(part: Mapping[str, Any] | None, key: str, where: str) -> float | None:
    if part is None:
        return None
    value = part.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise SpecError(f"{where}: performance.{key} is {value!r}; it must be a number above 0")
    return value / 1e3


def _error(part: Mapping[str, Any], key: str, where: str) -> float:
    if part.get("has_nan") or part.get("has_inf"):
        return math.nan if part.get("has_nan") else math.inf
    value = part.get(key)
    value = _NON_FINITE.get(value.lower(), value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{where}: correctness.{key} is {value!r}; it must be a number")
    return float(value)
