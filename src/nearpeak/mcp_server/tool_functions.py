"""Tools of the server, one function each: its signature is the JSON schema, its docstring the description."""

# Imports stand inside the functions, so that the server answers its first request before anything heavy is loaded.

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.runs.measurement import Measurement
    from nearpeak.core.work.case import Case

CaseWords = Annotated[
    str,
    Field(description="operator, then its axes and formats, e.g. 'gemm m=4096 n=4096 k=4096 dtype=bf16'"),
]
TargetName = Annotated[str, Field(description="device, e.g. 'h100_sxm'; show_targets lists all, 'cpu' is this machine")]
Edits = Annotated[
    list[str],
    Field(description="what-if edits of the device, e.g. ['dram.bandwidth=\"8 TB/s\"']; empty: as it is"),
]
RunnerName = Annotated[
    str,
    Field(description="what runs the case: torch_cpu, torch_cuda, numpy, …, or your function: 'callable:file.py:name'"),
]
Seconds = Annotated[float, Field(gt=0, le=600, description="seconds that this may take per case")]
Record = dict[str, Any]
"""Answer of a tool, as JSON."""

MOST_ROWS = 8
"""Findings and operators of a trace that an answer holds: the rest is in the report of `nearpeak analyze`."""
_ONE_AT_A_TIME = Lock()
"""Held while something is timed: two measurements side by side would slow each other."""


def bound(case: CaseWords, target: TargetName, edits: Edits = []) -> Record:  # noqa: B006 - read, never written
    """Return the time in seconds that no program can beat for one case on a device, with every term behind it."""
    from nearpeak.api import questions
    from nearpeak.bounds.proof_checker import proof_of
    from nearpeak.core.answers.bound import Policy
    from nearpeak.reports import case_bound_report as report

    stated, device = _case(case, "bound"), questions.target(target, edits)
    least = questions.bound(stated, device)
    proof = proof_of(stated.digest, least, device, Policy(), questions.version())
    record: Record = json.loads(report.to_json(stated, device, least, proof))
    return {name: value for name, value in record.items() if name != "proof"}  # `nearpeak bound --json` has it


def predict(case: CaseWords, target: TargetName, edits: Edits = []) -> Record:  # noqa: B006
    """Return the time in seconds that good software reaches for one case, its 90 % interval, parts and the bound."""
    from nearpeak.api import questions
    from nearpeak.api.achievable_time import predict as predicted
    from nearpeak.reports import prediction_report as report

    stated, device = _case(case, "predict"), questions.target(target, edits)
    record: Record = json.loads(report.to_json(stated, device, predicted(stated, device)))
    return record


def explain(
    case: CaseWords,
    target: TargetName,
    other_case: Annotated[str, Field(description="words that replace those of the case, e.g. 'm=4097'")] = "",
    other_target: Annotated[str, Field(description="device of the second prediction")] = "",
) -> Record:
    """Return why two predicted times differ, part by part: two cases, two devices, or both."""
    from nearpeak.api.achievable_time import explain as explained
    from nearpeak.api.case_words import case_of, replaced_words, words_of
    from nearpeak.reports import explanation_report as report

    words = words_of(case, "explain")
    second = case_of(replaced_words(words, words_of(other_case, "explain")), "explain") if other_case else None
    explanation = explained(case_of(words, "explain"), second, target=target, other_target=other_target or None)
    record: Record = json.loads(report.to_json(explanation))
    return record


def validate(
    case: CaseWords,
    implementation: Annotated[
        str,
        Field(description="'file.py:name' or 'module:name', a function (tensors by name, **axes) → outputs"),
    ],
    seed: Annotated[int, Field(ge=0, description="seed of all inputs; the same one repeats every figure")] = 0,
    limit_s: Seconds = 120.0,
) -> Record:
    """Check a function against the float64 reference, in a process of its own; says the first check that fails."""
    from nearpeak.measurement.isolated_validation import validated_apart
    from nearpeak.reports import validation_report as report

    validation, _ = validated_apart(_case(case, "validate"), implementation, seed, is_runner=False, limit_s=limit_s)
    record: Record = json.loads(report.to_json(validation))
    return record


def measure(case: CaseWords, runner: RunnerName = "torch_cpu", budget_s: Seconds = 1.0) -> Record:
    """Time one case on this machine, in a child process; an outcome other than a time says why there is none."""
    from nearpeak.api import measured_analysis
    from nearpeak.core.runs.measurement import Timing

    stated = _case(case, "measure")
    with _ONE_AT_A_TIME:
        (measurement,) = measured_analysis.measure(stated, runner, Timing(budget_s=budget_s))
    return _measured_record(measurement)


def _measured_record(measurement: "Measurement") -> Record:
    from nearpeak.api.measured_analysis import bound_s, known_target

    record: Record = {
        "case": measurement.case.record(), "runner": measurement.runner, "target": measurement.target,
        "outcome": measurement.outcome.value, "note": measurement.note,
    }  # fmt: skip
    if measurement.has_times:
        estimate, least_s = measurement.estimate(), bound_s(measurement.case, known_target(measurement.target))
        record |= {
            "time_s": estimate.centre_s, "low_s": estimate.low_s, "high_s": estimate.high_s,
            "sample_count": estimate.sample_count, "bound_s": least_s,
            "attained_ratio": None if least_s is None else least_s / estimate.centre_s,
        }  # fmt: skip
    return record


def compare(
    case: CaseWords,
    baseline: RunnerName,
    candidate: RunnerName,
    tolerance_ratio: Annotated[float, Field(gt=0, lt=1, description="change up to which the two are the same")] = 0.02,
    budget_s: Seconds = 60.0,
) -> Record:
    """Judge whether a candidate is faster than a baseline on one case, from fresh processes that take turns."""
    import sys

    from nearpeak.api import measured_analysis
    from nearpeak.measurement.timing.interleaved_rounds import Arm

    stated = _case(case, "compare")
    arms = [Arm(runner=runner, python=sys.executable) for runner in (baseline, candidate)]
    with _ONE_AT_A_TIME:
        comparison = measured_analysis.compare(
            stated, arms[0], arms[1], tolerance_ratio=tolerance_ratio, budget_s=budget_s
        )
    judgement = comparison.judgement
    return {
        "case": stated.record(), "baseline": comparison.baseline, "candidate": comparison.candidate,
        "outcome": comparison.outcome, "note": comparison.note, "clock": comparison.clock,
        "judgement": None if judgement is None else asdict(judgement),
        "differences": [list(difference) for difference in comparison.differences],
    }  # fmt: skip


def analyze_trace_in(root: Path) -> Callable[..., Record]:
    """Return the tool `analyze_trace`, which reads files below `root` alone."""

    def analyze_trace(
        path: Annotated[str, Field(description="a profiler's trace file, below the folder of the server")],
        target: Annotated[str, Field(description="device; by default the one that the trace names")] = "",
    ) -> Record:
        """Return where the time of a recorded run went: a verdict, and findings with gain and refutation."""
        from nearpeak.api import questions
        from nearpeak.api.trace_analysis import analyze_trace as analyzed

        file = (root / path).resolve()
        if not file.is_relative_to(root):
            raise SpecError(f"{path}: lies outside of {root}, the folder of this server (--root)")
        report = analyzed(file, questions.target(target) if target else None)
        findings = [
            {"id": finding.id, "claim": finding.claim, "gain_s": finding.gain_s, "gain_low_s": finding.gain_low_s,
             "gain_high_s": finding.gain_high_s, "falsifier": finding.falsifier}
            for finding in report.findings
        ]  # fmt: skip
        return {
            "trace": report.executed.name, "device": report.executed.device, "target": report.executed.target,
            "step_count": report.executed.step_count, "step_s": report.step_s, "verdict": report.verdict,
            "findings": findings[:MOST_ROWS], "finding_count": len(findings),
            "undecided": [{"id": abstained.id, "reason": abstained.reason} for abstained in report.abstentions],
        }  # fmt: skip

    return analyze_trace


Filter = Annotated[str, Field(description="part of the name; empty for all")]


def show_targets(name: Filter = "") -> Record:
    """List the devices that are known, or those whose name contains a text."""
    from nearpeak.targets import TARGETS, target_of

    devices = [target_of(entry) for entry in _chosen(TARGETS.names(), name, "target")]
    return {
        "targets": [
            {"name": device.name, "title": device.title, "architecture": device.architecture,
             "dram_bytes_per_s": device.dram.bandwidth_bytes_per_s, "dram_bytes": device.dram.capacity_bytes}
            for device in devices
        ]
    }  # fmt: skip


def show_operators(name: Filter = "") -> Record:
    """List the operators with the axes that a case needs, or show those whose name contains a text with all choices."""
    from nearpeak.api.catalogue import operator_record, usage_of
    from nearpeak.ops import OPS

    operators = [OPS[entry] for entry in _chosen(list(OPS), name, "op")]
    if len(operators) <= MOST_ROWS:
        full = [operator_record(operator) | {"usage": list(usage_of(operator))} for operator in operators]
        return {"operators": [{key: entry[key] for key in ("op", "summary", "phases", "usage")} for entry in full]}
    return {
        "operators": [
            {"op": operator.name, "needs": [name for name in signature.names() if name not in signature.defaults]}
            for operator in operators
            for signature in [operator.signatures["forward"]]
        ]
    }


def _chosen(names: Sequence[str], part: str, kind: str) -> list[str]:
    """Return the names that contain `part`; where none does, the registry's error with the closest ones."""
    chosen = [name for name in names if part in name]
    if not chosen:
        raise SpecError(f"{kind} {part!r}: no name contains it; an empty name lists all {len(names)}")
    return chosen


def _case(words: str, tool: str) -> "Case":
    from nearpeak.api.case_words import case_of, words_of

    return case_of(words_of(words, tool), tool)
