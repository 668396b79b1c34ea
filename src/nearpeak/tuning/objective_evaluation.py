"""Evaluation of configurations by a function that returns several objectives, each call in its own process."""

import time
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from nearpeak.base.isolation import call_isolated
from nearpeak.case_tensors.user_functions import exception_text, function_of
from nearpeak.core.tuning.space import Setting
from nearpeak.core.tuning.study import FAILED, TIMED, Trial
from nearpeak.errors import MeasureError, error_type
from nearpeak.measurement.isolated_measurement import thread_variables

_TORCH = ("torch", "torch._dynamo", "nearpeak.frontends.torch.module_capture", "nearpeak.prediction.step_expectation")
"""Modules that a function which trains and captures needs: about 3 CPU s, paid once and not by each configuration."""


def evaluated(
    function: str, settings: Mapping[str, Setting], objectives: Sequence[str], seed: int, *,
    limit_s: float, memory_bytes: int, thread_count: int = 1,
) -> Trial:  # fmt: skip
    """Return the trial of one configuration: `function(seed=…, **settings)` returns a number for each objective.

    Raises:
        NearpeakError: the function cannot be imported.
    """
    begun_s, file = time.monotonic(), Path(function.rpartition(":")[0])
    is_torch = file.suffix == ".py" and file.is_file() and b"torch" in file.read_bytes()
    preload = (__name__, *(_TORCH if is_torch else ()))
    arguments = {"function": function, "settings": dict(settings), "seed": seed}
    ending = call_isolated(
        f"{__name__}:answer_to", arguments, timeout_s=limit_s, memory_bytes=memory_bytes, preload=preload,
        variables=thread_variables(thread_count),
    )  # fmt: skip
    spent_s = time.monotonic() - begun_s
    if ending.verdict == "error":
        kind, message = ending.value
        raise error_type(kind, MeasureError)(message)
    values, fault = _values(ending.verdict, ending.value, objectives)
    if fault:
        return Trial(position=0, settings=settings, outcome=FAILED, note=fault, spent_s=spent_s)
    return Trial(position=0, settings=settings, outcome=TIMED, values=values, spent_s=spent_s)


def answer_to(function: str, settings: Mapping[str, Setting], seed: int) -> dict[str, Any]:
    """Return what the function returns, or the first line of its exception; executed in the child process."""
    call = function_of(function, "evaluate")
    try:
        return {"values": {name: float(value) for name, value in call(seed=seed, **settings).items()}}
    except Exception as error:
        text = (exception_text(error).splitlines() or [""])[0]
        return {"fault": f"{type(error).__name__}: {text}"[:300]}


def _values(verdict: str, answer: Any, objectives: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return the objectives of an answer, and what is wrong with it."""
    if verdict != "result":
        return {}, {"timeout": "it did not end in time", "memory": "it took too much memory"}.get(verdict, "it crashed")
    if "fault" in answer:
        return {}, str(answer["fault"])
    values = {name: answer["values"].get(name) for name in objectives}
    for name, value in values.items():
        if not isinstance(value, float) or not isfinite(value):
            return {}, f"it returned {value!r} for {name}; a finite number is right"
    return values, ""
