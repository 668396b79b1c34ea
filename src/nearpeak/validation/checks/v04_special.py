"""V4, special values: NaN and infinities appear in the outputs exactly where the oracle has them."""

from collections.abc import Mapping

import numpy as np

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.comparison.output_comparison import comparable, mask_fault, values_of
from nearpeak.validation.inputs.nonfinite_values import ROW, SECOND, SPECIAL_VALUES, special_draw, spilled
from nearpeak.validation.oracle.expected_results import Expected, arguments_of, tolerance_of
from nearpeak.validation.running.trial import Trial


def special(trial: Trial) -> CheckResult:
    """Return whether the masks of NaN and infinity agree, for ordinary inputs and for inputs with one such value."""
    for draw, ran in zip(trial.draws, trial.runs, strict=True):
        if ran.error or not comparable(ran.outputs, draw.expected):
            return CheckResult(check="V4", status=SKIPPED, reason="V1 failed")
        fault = _fault(values_of(ran.outputs), draw.expected)
        if fault:
            return CheckResult(check="V4", status="NUMERIC_FAIL", reason=f"{draw.distribution} inputs: {fault}")
    if not follows_nan(trial.case):
        return CheckResult(check="V4", status=PASS, reason="the contract leaves NaN and infinities open")
    return _directed(trial)


def follows_nan(case: Case) -> bool:
    """Return whether the operator's tolerance covers NaN and infinities for the attributes of `case`."""
    numerics = OPS[case.op].tolerance
    choices = {text for name, value in case.attributes for text in (str(value), f"{name}={value}")}
    return numerics.special != "unspecified" and not choices.intersection(numerics.unspecified)


def inputs_with_nan(case: Case) -> list[str]:
    """Return the float inputs whose NaN and infinities are checked, if their formats have them."""
    if not follows_nan(case):
        return []
    policy, names = OPS[case.op].tolerance.special, []
    for name, tensor in OPS[case.op].inputs(**arguments_of(case)).items():
        dtype = torch_format(tensor.dtype)
        if dtype.is_floating_point and dtype.itemsize > 1 and tensor.elements:
            names += [name] if policy == "propagate" or name in policy.split() else []
    return names


def _directed(trial: Trial) -> CheckResult:
    """Check NaN, infinities and a row of them in each float input."""
    for name in inputs_with_nan(trial.case):
        for value, where in SPECIAL_VALUES:
            result = _with_value(trial, name, value, where)
            if result.failed:
                return result
    return CheckResult(check="V4", status=PASS)


def _with_value(trial: Trial, name: str, value: float, place: str) -> CheckResult:
    draw = special_draw(trial.case, trial.seed, name, value, place)
    where = f"{value} {_PLACES.get(place, 'in')} {name}"
    if draw is None:
        return CheckResult(check="V4", status=PASS)
    ran = trial.answer(draw)
    if ran.error:
        return CheckResult(check="V4", status=ran.status, reason=f"{where}: {ran.error}")
    if not comparable(ran.outputs, draw.expected):
        return CheckResult(check="V4", status="SHAPE_FAIL", reason=f"{where}: other outputs than declared")
    together = bool(np.isinf(value)) and tolerance_of(trial.case).kind != "exact"
    got = values_of(ran.outputs)
    judged = got
    if together and tolerance_of(trial.case).collapses:  # NaN may stand in the place of an expected 0
        zeros = {name: np.isnan(array) & (draw.expected[name].rounded == 0) for name, array in got.items()}
        judged = {name: np.where(zeros[name], 0.0, array) for name, array in got.items()}
    fault = _fault(judged, draw.expected, together=together) or _whole_fault(got, draw.expected)
    if fault or judged is not got:
        fault = spilled(draw, got) or fault
    if fault:
        return CheckResult(check="V4", status="NUMERIC_FAIL", reason=f"{where}: {fault}")
    return CheckResult(check="V4", status=PASS)


_PLACES = {ROW: "all over the first row of", SECOND: "at the start of the second row of"}


def _whole_fault(got: dict[str, np.ndarray], expected: Mapping[str, Expected]) -> str:
    """Return where booleans, positions and counts differ: they show what became of NaN and infinities."""
    for name, output in expected.items():
        if got[name].dtype.kind in "fc":
            continue
        wrong = (got[name] != output.values) & (output.bound == 0)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(place)} is {got[name][place]}, expected {output.values[place]}"
    return ""


def _fault(got: dict[str, np.ndarray], expected: Mapping[str, Expected], *, together: bool = False) -> str:
    faults = (
        f"{name}: {fault}"
        for name, output in expected.items()
        if (fault := mask_fault(got[name], output, together=together))
    )
    return next(faults, "")


CHECK = special
