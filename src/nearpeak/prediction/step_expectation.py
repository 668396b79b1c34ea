"""Expected answers of a whole step: times call by call, by execution mode, and what is worth trying."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from nearpeak.core.answers.analysis import Analysis, Opportunity, TargetAnalysis
from nearpeak.core.answers.execution_time import check_mode
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.prediction import format_opportunities as formats
from nearpeak.prediction import step_opportunities as steps
from nearpeak.prediction.execution_modes import executions_of, usual_mode
from nearpeak.prediction.kernel_model import USUAL, Setting
from nearpeak.prediction.product_units import with_rounding
from nearpeak.prediction.step_time import as_step, with_predictions

_GRAPHS = {"NVIDIA": "CUDA graph", "AMD": "HIP graph"}
"""Makers' names of what is recorded once and submitted as a whole."""


def with_expectations(
    analysis: Analysis,
    workload: Workload,
    targets: Sequence[Target],
    *,
    execution: str = "",
    file: Path | None = None,
    setting: Setting = USUAL,
    policy: str = "strict",
) -> Analysis:
    """Return the analysis of a workload with expected times in every execution mode, and opportunities in one of them.

    Args:
        targets: those of the analysis, in its order.
        execution: the mode of headline and opportunities; by default the usual one of the workload's source.
        file: coefficients of the user's own.
        policy: units that may form products, as bounds take it: with `tf32` fp32 products run on units for TF32.

    Raises:
        SpecError: the mode is unknown, or the workload is a list of cases.
    """
    check_mode(execution)
    if execution and workload.step == "sweep":
        raise SpecError(f"--execution {execution}: {workload.name} is a list of cases, which no one step submits")
    if workload.origin.get("engine", "").partition(":")[0] == "tensorrt":
        setting = dataclasses.replace(setting, engine="tensorrt")
    if setting.software:
        setting = dataclasses.replace(setting, software_or_best=True)
    targets = [with_rounding(target, policy) for target in targets]
    predicted = with_predictions(analysis, targets, file, setting)
    mode, setting = execution or usual_mode(workload), as_step(setting, workload.step)
    answers = [
        _with_modes(workload, predicted, answer, target, mode, setting)
        for answer, target in zip(predicted.targets, targets, strict=True)
    ]
    return dataclasses.replace(
        predicted, targets=tuple(answers), execution=mode if any(answer.executions for answer in answers) else ""
    )


def _with_modes(
    workload: Workload, analysis: Analysis, answer: TargetAnalysis, target: Target, mode: str, setting: Setting
) -> TargetAnalysis:
    calls = {
        row.case: (time.bound_s, time.prediction)
        for row, time in zip(analysis.rows, answer.times, strict=True) if time.prediction is not None
    }  # fmt: skip
    answer = dataclasses.replace(
        answer, executions=executions_of(workload, calls, answer.prediction, answer.bound_s, target)
    )
    if not answer.executions:
        return answer
    execution = next(candidate for candidate in answer.executions if candidate.mode == mode)
    graph = _GRAPHS.get(target.vendor, "graph")
    step = steps.Step(workload=workload, analysis=analysis, answer=answer, execution=execution, graph=graph)
    return dataclasses.replace(answer, opportunities=_opportunities(step, target, setting))


def _opportunities(step: steps.Step, target: Target, setting: Setting) -> tuple[Opportunity, ...]:
    on_step = (steps.submission, steps.batching, steps.constants, steps.layout)
    on_formats = (formats.kv_cache, formats.weights, formats.precision, formats.products)
    candidates = [opportunity for rule in on_step for opportunity in rule(step)]
    candidates += [opportunity for rule in on_formats for opportunity in rule(step, target, setting)]
    return steps.ordered(candidates)
