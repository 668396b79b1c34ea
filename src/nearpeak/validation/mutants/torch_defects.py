"""Defects of PyTorch's own kernels, shown without an error bound: such a kernel is no legitimate variant."""

from typing import Any

from nearpeak.case_tensors.random_inputs import error_line
from nearpeak.core.work.case import Case
from nearpeak.validation.checks.v04_special import inputs_with_nan
from nearpeak.validation.comparison.output_comparison import comparable, values_of
from nearpeak.validation.inputs.nonfinite_values import SPECIAL_VALUES, special_draw, spilled
from nearpeak.validation.oracle.autograd_gradients import widened_case
from nearpeak.validation.oracle.expected_results import tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, draw_inputs, unbounded_draw
from nearpeak.validation.oracle.gradient_oracle import gradients_of, upstream_of
from nearpeak.validation.running.implementation_run import Implementation, run

WIDER = "fp32"
"""The format in which the same kernel must be correct."""


def defect(case: Case, variant: Implementation, seed: int) -> str:
    """Return a result that should be finite, is not, and is finite in fp32; empty where there is none.

    PyTorch's bf16 products on CPUs with AMX read one number past a row of odd length and multiply it with a padding of
    0: an infinity there turns the row before into NaN (2.13, oneDNN). Its unfused optimizers lose an epsilon of 1e-8 in
    fp16, and turn parameters without gradient into NaN.
    """
    wide = widened_case(case, WIDER)
    if wide is None or wide == case:
        return ""
    for name in inputs_with_nan(case):
        for value, where in SPECIAL_VALUES:
            draw = special_draw(case, seed, name, value, where)
            fault = "" if draw is None else _spilled(draw, variant)
            if draw is not None and fault and not _spilled(_widened(wide, draw), variant):
                return f"{value} in {name}: {fault}; in {WIDER} it is right"
    draw = draw_inputs(case, seed, _FIRST) if _FIRST in tolerance_of(case).rounds else None
    fault = "" if draw is None else _spilled(draw, variant)
    if draw is not None and fault and not _spilled(_widened(wide, draw), variant):
        return f"states of 0: {fault}; in {WIDER} it is right"
    return ""


_FIRST = "first_step"


def refused_gradient(case: Case, variant: Implementation, seed: int) -> str:
    """Return the library's error where it computes a case but refuses its gradient; empty where it does not.

    PyTorch's fp64 convolutions on a CPU have no gradient of channels-last weights (2.13).
    """
    draw = draw_inputs(case, seed, "normal")
    upstream = None if draw is None else upstream_of(draw, seed)
    if draw is None or upstream is None:
        return ""
    try:
        gradients_of(variant, draw, upstream)
    except (NotImplementedError, RuntimeError) as error:
        return f"no gradient: {error_line(error)}"
    return ""


def _widened(wide: Case, draw: Draw) -> Draw:
    tensors: dict[str, Any] = {k: t.float() if t.is_floating_point() else t for k, t in draw.tensors.items()}
    return unbounded_draw(wide, tensors, draw.distribution)


def _spilled(draw: Draw, variant: Implementation) -> str:
    ran = run(variant, draw.tensors, draw.arguments)
    if ran.error or not comparable(ran.outputs, draw.expected):
        return ""
    return spilled(draw, values_of(ran.outputs))
