"""Validation of a user's function in a child process; a crash or timeout becomes a failed check."""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearpeak.base.isolation import call_isolated
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NotModelledError, SpecError, error_type
from nearpeak.exchange.measurement_lines import VALIDATION
from nearpeak.ops import case_of
from nearpeak.units import show

if TYPE_CHECKING:
    from nearpeak.validation import Implementation


def runs_foreign_code(runner: str) -> bool:
    """Return whether the runner runs a user's function, which may end the calling process.

    >>> runs_foreign_code("callable:my_kernels.py:softmax"), runs_foreign_code("torch_cpu")
    (True, False)
    """
    from nearpeak.measurement.runners import abilities_of

    return abilities_of(runner).argument == "module:function"


def validated_apart(
    case: Case, named: str, seed: int, *, is_runner: bool, limit_s: float = math.inf
) -> tuple[Validation, str]:
    """Return the validation of a function in a child process, and the end of its output.

    Args:
        named: the function as `module:function` or `file.py:function`, or a runner with its argument.
        is_runner: whether `named` is a runner.
        limit_s: wall time after which the child is killed with status TIMEOUT.

    Raises:
        NearpeakError: the function cannot be imported, or the case cannot be validated.
    """
    arguments = {"record": case.record(), "named": named, "seed": seed, "is_runner": is_runner, "folder": os.getcwd()}
    ending = call_isolated(
        "nearpeak.measurement.isolated_validation:validate_named", arguments, timeout_s=limit_s, memory_bytes=None,
        preload=("torch", "nearpeak.validation", __name__),
    )  # fmt: skip
    if ending.verdict == "result":
        return VALIDATION.read(ending.value), ending.output
    if ending.verdict == "died":
        how = f"it ended its process with {ending.signal_name or f'exit code {ending.value}'}"
        return _ended(case, named, seed, "CRASH", how, is_runner=is_runner), ending.output
    if ending.verdict == "memory":
        return _ended(case, named, seed, "CRASH", "it took too much memory", is_runner=is_runner), ending.output
    if ending.verdict == "timeout":
        how = f"it did not end within {show(limit_s, 's')} (--limit)"
        return _ended(case, named, seed, "TIMEOUT", how, is_runner=is_runner), ending.output
    kind, message = ending.value
    raise error_type(kind, MeasureError)(message if ending.verdict == "error" else f"{named}: {kind}: {message}")


def validate_named(record: Mapping[str, Any], named: str, seed: int, is_runner: bool, folder: str) -> dict[str, Any]:
    """Return the validation, as plain data, of a function imported from `folder`; executed in the child process."""
    from nearpeak.validation import validate

    os.chdir(folder)
    case = case_of(record)
    validation = validate(case, of_runner(named, case) if is_runner else imported(named), seed=seed)
    plain: dict[str, Any] = VALIDATION.write(validation)  # type: ignore[misc]
    return plain


def _ended(case: Case, named: str, seed: int, status: str, how: str, *, is_runner: bool) -> Validation:
    """Return the record of a function whose process ended, or was killed, before it was validated."""
    from nearpeak.validation import Implementation, recorded

    def never(*_: object, **__: object) -> dict[str, object]:
        raise AssertionError("it has ended a process already")

    reason = f"{how}, so that nothing it computes can be judged"
    tested = Implementation(name=named, call=never, is_runner=is_runner)
    return recorded(case, tested, seed, (CheckResult(check="V1", status=status, reason=reason),))


def imported(text: str) -> "Implementation":
    """Return the implementation that `module:function` or `file.py:function` names."""
    import dataclasses

    from nearpeak.case_tensors.user_functions import function_of, object_of
    from nearpeak.validation import Implementation
    from nearpeak.validation.running.implementation_run import as_implementation

    target = object_of(text, "--implementation")
    implementation = target if isinstance(target, Implementation) else function_of(text, "--implementation")
    return dataclasses.replace(as_implementation(implementation), name=text)


def of_runner(name: str, case: Case) -> "Implementation":
    """Return the runner's implementation of the case.

    Raises:
        NotModelledError: it cannot run the case.
        SpecError: it returns no outputs.
    """
    from nearpeak.case_tensors.random_inputs import drawn
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.measurement.outcomes import unsupported_reason
    from nearpeak.measurement.runners import backend_of
    from nearpeak.measurement.validation_gate import named_implementation
    from nearpeak.validation import pytorch

    if name == "torch_cpu":
        return pytorch(case)
    backend = backend_of(name, Timing())
    reason = (unsupported_reason(backend, case) or backend.refusal(case)) if hasattr(backend, "prepare") else ""
    if reason:
        raise NotModelledError(f"validate: {reason}")
    implementation: Implementation | None = None
    if hasattr(backend, "prepare"):
        ledger = backend.prepare(case, drawn(case)).ledger if backend.abilities.converts else ()
        implementation = named_implementation(case, backend, name, ledger)
    if implementation is None:
        raise SpecError(
            f"validate: runner {name} gives no outputs of {case.phase} to check; give --implementation module:function"
        )
    return implementation
