"""Validation of an implementation against a float64 oracle, and a gate on whether the case could expose a wrong one."""

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.base.machine import versions
from nearpeak.case_tensors.empty_cases import refuse_empty
from nearpeak.case_tensors.random_inputs import too_large
from nearpeak.case_tensors.user_functions import sys_exit_refused, with_named_outputs
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import MeasureError, NotModelledError, SpecError
from nearpeak.ops import OPS, work_of
from nearpeak.validation.checks import CHECKS
from nearpeak.validation.checks.v04_special import follows_nan
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.running.implementation_run import Implementation, as_implementation, imported_torch
from nearpeak.validation.running.trial import Trial

__all__ = ["Implementation", "forward_case", "pytorch", "recorded", "validate"]


def validate(case: Case, implementation: Implementation | Callable[..., Mapping[str, Any]], *, seed: int) -> Validation:
    """Return what the checks V0 to V12 say about `implementation` on `case`.

    A case of the gradient is judged by V9, together with the forward pass that it belongs to.

    Args:
        implementation: (tensors by input name, **arguments of the case) → outputs by name, as an operator's
            `torch_call`; an `Implementation` where it takes NumPy arrays, has a gradient of its own or a ledger.
        seed: of all inputs; the same seed repeats every figure of the record.

    Raises:
        MissingExtraError: PyTorch is not installed.
        SpecError: its extents contradict each other, or its tensors take too much for a reference in float64.
        NotModelledError: the operator has no numerics contract for a format of the case, or no answer with an extent
            of 0.

    >>> from nearpeak.ops import case
    >>> product = case("gemm", m=8, n=8, k=16, dtype="fp32")
    >>> validate(product, pytorch(product), seed=0).status
    'PASS'
    >>> validate(product, lambda tensors, **_: {"y": tensors["a"][:, :, :8] @ tensors["b"][:, :8]}, seed=0).status
    'NUMERIC_FAIL'
    """
    imported_torch()
    refuse_narrow(case)
    with contextlib.suppress(NotModelledError):  # extents that contradict each other are refused by name
        work_of(case)
        if large := too_large(case):
            raise SpecError(f"{case.op}: {large}; validate a smaller case of its kind")
    refuse_empty(case)
    tested = as_implementation(implementation)
    backward = None if tested.backward is None else sys_exit_refused(tested.backward)
    named = dataclasses.replace(tested, call=with_named_outputs(case, tested.call), backward=backward)
    gradient = None if case.phase == "forward" else case
    trial = Trial(case=forward_case(case), implementation=named, seed=seed, gradient=gradient)
    results = tuple(_result(check, trial) for check in CHECKS)
    return recorded(case, tested, seed, results)


def recorded(case: Case, tested: Implementation, seed: int, results: tuple[CheckResult, ...]) -> Validation:
    """Return the record of what checks have said of an implementation."""
    return Validation(
        case=case, implementation=tested.name, seed=seed, results=results, command=_command(case, tested, seed),
        policy=_policy(forward_case(case)), engine=_engine(),
    )  # fmt: skip


def recorded_as_timed(case: Case, runner: str, result: CheckResult) -> Validation:
    """Return the record of a runner's result that only timing shows, and shows again."""
    words = shlex.split(_command(case, pytorch(case), 0))
    again = shlex.join(["nearpeak", "measure", *words[2 : words.index("--runner")], "--runner", runner])
    return Validation(
        case=case, implementation=runner, seed=0, results=(result,), command=again,
        policy=_policy(forward_case(case)), engine=_engine(),
    )  # fmt: skip


CONTRACT_VERSION = 24
# 1: bounds, rounds and groups. 2: sums in narrow formats are rounded once, errors average out over fresh inputs.
# 3: inputs of unlike sizes. 4: positions are judged by the values they name, gradients at inputs that tell them.
# 5: bounds of chains know what cancels on the way, whatever the inputs; few numbers meet the first and last edge.
# 6: matrices have the form that their routine is for; signs and order that are open are chosen before comparing.
# 7: columns that complete a basis are judged by the projection on their span, single sums by PyTorch's of all rounds.
# 8: maxima, squares and exponentials that fail for some rows; formats that end; NaN first, rows of minus infinity.
# 9: rows that are stored before their weight, and their factors. 10: what follows from a step's number in fp32; copies
# that are none; NaN behind AMSGrad's maximum is open. 11: a row that may be kept is rounded in one of two ways, each
# element by itself; products that are stored once for each tap are judged by PyTorch's own; gradients are those of
# either of equal values. 12: errors of gradients in 16 bits average out over fresh inputs, along each of their terms;
# a value without its position has the gradient of any of equal ones. 13: weights of draws are none below 0, and each of
# them may become the heaviest. 14: what is interpolated errs by what it holds, norms over few numbers by their mean's
# rounding. 15: few results get as many rounds as errors are pooled of; parameters far larger than their updates.
# 16: NaN at the start of a second row; scores in 16 bits that are far below 0 keep digits. 17: gradients that are
# missing; what comes from above and does not lie densely; empty groups and rows that nothing names; results that a
# later call changes, global state that one leaves changed. 18: truth values are both, some numbers are clipped, the
# last row of a table is read; gradients where a first round selects nothing, and of results below the numbers of fp16.
# 19: kernels of GPUs; numbers in fp32 beside narrow inputs keep digits. 20: lists of a search are told apart by more
# than rounding; windows of padding alone have no gradient, norms of two numbers a small one; both ends of one bin.
# 21: further rounds are sought where only the order of equal values changed; the last of many bins; gates of many
# features are open; norms of one number are asked at tiny ones, and single numbers are left out too. 22: states of
# scans are held in fp32 in PyTorch's way, and those of linear attention and the delta rule decay. 23: optimizers
# whose states are 0, as before a first step; scale and shift of a norm that are stored in 16 bits are right. 24: solves
# by factors err element by element, determinants are near 1; few rows lie in different segments; keys beyond a cap.


def _policy(case: Case) -> dict[str, str]:
    """Return what of the contract decides what is right for `case`, in words."""
    numerics = tolerance_of(case)
    return {
        "kind": numerics.kind, "oracle": "fp64", "special": numerics.special if follows_nan(case) else "unspecified",
        "sum": numerics.reduction or "none", "stored": str(numerics.steps_count), "rounds": ",".join(numerics.rounds),
    }  # fmt: skip


def _engine() -> str:
    installed = dict(versions("nearpeak", "torch"))
    known = [f"nearpeak {installed.get('nearpeak', 'of a working tree')}", f"contract {CONTRACT_VERSION}"]
    return ", ".join([*known, f"torch {installed['torch']}"] if "torch" in installed else known)


def refuse_narrow(case: Case) -> None:
    """Refuse a case in a format for which the operator has no contract."""
    least = OPS[case.op].numerics.least_format
    left = {str(value) for _, value in case.attributes}.intersection(OPS[case.op].numerics.not_in_fp16)
    if left and "fp16" in dict(case.dtypes).values():
        raise NotModelledError(f"{case.op}: no numerics contract for {min(left)} in fp16; it has one for bf16 and fp32")
    narrow = [value for _, value in case.dtypes if least and dtype_of(value).bits_count < dtype_of(least).bits_count]
    if narrow:
        raise NotModelledError(f"{case.op}: no numerics contract for {narrow[0]}; it has one for {least} and wider")


def _result(check: Callable[[Trial], CheckResult], trial: Trial) -> CheckResult:
    try:
        with np.errstate(all="ignore"):  # infinities are results like others, and differ by nothing
            return check(trial)
    except MeasureError as error:
        number = int(check.__module__.rsplit(".v", 1)[1][:2])
        return CheckResult(check=f"V{number}", status="INVALID_REFERENCE", reason=str(error))


def pytorch(case: Case) -> Implementation:
    """Return PyTorch's own way to compute `case`."""
    return Implementation(name="torch_cpu", call=OPS[case.op].torch_call)


def forward_case(case: Case) -> Case:
    """Return the forward pass that `case` is, or whose gradient it is.

    What the gradient's case leaves open stands at its default; what has a gradient is present.

    >>> from nearpeak.ops import case
    >>> gradient = case("softmax", "backward", rows=2, columns=3, dtype="fp32")
    >>> forward_case(gradient) == case("softmax", rows=2, columns=3, dtype="fp32")
    True
    """
    return OPS[case.op].forward_case(case)


def _command(case: Case, implementation: Implementation, seed: int) -> str:
    """Return the command that repeats the validation."""
    words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in _words(case)]
    option = "--runner" if implementation.is_runner or ":" not in implementation.name else "--implementation"
    named = implementation.words or (option, implementation.name)
    return shlex.join(["nearpeak", "validate", case.op, *words, *named, "--seed", str(seed)])


def _words(case: Case) -> list[tuple[str, Any]]:
    """Return what must be stated of a case: what cannot be left out without another one coming out."""
    stated: dict[str, Any] = {**arguments_of(case), **dict(case.memory)}
    for name in tuple(stated):
        fewer = {key: value for key, value in stated.items() if key != name}
        with contextlib.suppress(SpecError):
            if OPS[case.op].case(case.phase, **fewer) == case:
                stated = fewer
    return [*([("phase", case.phase)] if case.phase != "forward" else []), *stated.items()]
