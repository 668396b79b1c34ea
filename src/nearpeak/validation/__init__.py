"""Validation of an implementation against a float64 oracle, and a gate on whether the case could expose a wrong one."""

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.base.host_system import versions
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
    """Return the results of the checks V0 to V12 for `implementation` on `case`.

    V9 judges a case of the gradient, together with its forward pass.

    Args:
        implementation: (tensors by input name, **arguments of the case) → outputs by name, as an operator's
            `torch_call`; an `Implementation` where it takes NumPy arrays, has a gradient of its own or a ledger.
        seed: of all inputs; the same seed repeats every figure of the record.

    Raises:
        MissingExtraError: PyTorch is not installed.
        SpecError: its extents contradict each other, or its tensors take too much for a reference in float64.
        NotModelledError: the operator has no tolerance for a format of the case, or no result with an extent of 0.

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
    """Return the validation record of an implementation."""
    return Validation(
        case=case, implementation=tested.name, seed=seed, results=results, command=_command(case, tested, seed),
        policy=_policy(forward_case(case)), engine=_engine(),
    )  # fmt: skip


def recorded_as_timed(case: Case, runner: str, result: CheckResult) -> Validation:
    """Return the record of a failure that only a timed run shows, with the command that repeats it."""
    words = shlex.split(_command(case, pytorch(case), 0))
    again = shlex.join(["nearpeak", "measure", *words[2 : words.index("--runner")], "--runner", runner])
    return Validation(
        case=case, implementation=runner, seed=0, results=(result,), command=again,
        policy=_policy(forward_case(case)), engine=_engine(),
    )  # fmt: skip


CONTRACT_VERSION = 24
"""Version of checks, bounds and inputs; docs/guide/validation.md lists the changes."""


def _policy(case: Case) -> dict[str, str]:
    """Return the parts of the operator's tolerance that decide how `case` is judged, as text."""
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
    """Refuse a case in a format for which the operator has no tolerance."""
    least = OPS[case.op].tolerance.least_format
    left = {str(value) for _, value in case.attributes}.intersection(OPS[case.op].tolerance.not_in_fp16)
    if left and "fp16" in dict(case.dtypes).values():
        raise NotModelledError(f"{case.op}: no numerics contract for {min(left)} in fp16; it has one for bf16 and fp32")
    narrow = [value for _, value in case.dtypes if least and dtype_of(value).bits_count < dtype_of(least).bits_count]
    if narrow:
        raise NotModelledError(f"{case.op}: no numerics contract for {narrow[0]}; it has one for {least} and wider")


def _result(check: Callable[[Trial], CheckResult], trial: Trial) -> CheckResult:
    try:
        with np.errstate(all="ignore"):  # infinities are ordinary results, and their difference is NaN
            return check(trial)
    except MeasureError as error:
        number = int(check.__module__.rsplit(".v", 1)[1][:2])
        return CheckResult(check=f"V{number}", status="INVALID_REFERENCE", reason=str(error))


def pytorch(case: Case) -> Implementation:
    """Return PyTorch's own implementation of `case`."""
    return Implementation(name="torch_cpu", call=OPS[case.op].torch_call)


def forward_case(case: Case) -> Case:
    """Return `case` if it is a forward pass, else the forward pass whose gradient it is.

    Attributes that a gradient's case does not state take their defaults; inputs that have a gradient are present.

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
    """Return the arguments that a command must state: without any of them it would mean another case."""
    stated: dict[str, Any] = {**arguments_of(case), **dict(case.memory)}
    for name in tuple(stated):
        fewer = {key: value for key, value in stated.items() if key != name}
        with contextlib.suppress(SpecError):
            if OPS[case.op].case(case.phase, **fewer) == case:
                stated = fewer
    return [*([("phase", case.phase)] if case.phase != "forward" else []), *stated.items()]
