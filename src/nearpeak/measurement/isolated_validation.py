"""The contract on a function of the user's, in a process of its own: whatever it does, a record comes back."""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nearpeak import errors
from nearpeak.base.isolation import call_isolated
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NotModelledError, SpecError
from nearpeak.exchange.measurement_lines import VALIDATION
from nearpeak.ops import case_of
from nearpeak.units import show

if TYPE_CHECKING:
    from nearpeak.validation import Implementation


def runs_foreign_code(runner: str) -> bool:
    """Say whether what the runner runs is a function of the user's, which may end the process that calls it.

    >>> runs_foreign_code("callable:my_kernels.py:softmax"), runs_foreign_code("torch_cpu")
    (True, False)
    """
    from nearpeak.measurement.runners import RUNNERS

    abilities = getattr(RUNNERS[runner.partition(":")[0]], "abilities", None)
    return getattr(abilities, "argument", "") == "module:function"


def validated_apart(
    case: Case, named: str, seed: int, *, is_runner: bool, limit_s: float = math.inf
) -> tuple[Validation, str]:
    """Return what the contract says of a function, and the end of what the function has printed.

    Args:
        named: the function as `module:function` or `file.py:function`, or the runner of one.
        is_runner: which of the two.
        limit_s: wall time after which the function is ended: the record says that it hung.

    Raises:
        NearpeakError: the function cannot be imported, or the case not be checked.
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
    if ending.verdict == "timeout":
        how = f"it did not end within {show(limit_s, 's')} (--limit)"
        return _ended(case, named, seed, "TIMEOUT", how, is_runner=is_runner), ending.output
    kind, message = ending.value
    raise getattr(errors, kind, MeasureError)(message if ending.verdict == "error" else f"{named}: {kind}: {message}")


def validate_named(record: Mapping[str, Any], named: str, seed: int, is_runner: bool, folder: str) -> dict[str, Any]:
    """Return what the contract says of a function that is looked for in `folder`, in this process, as plain data."""
    from nearpeak.validation import validate

    os.chdir(folder)
    case = case_of(record)
    validation = validate(case, of_runner(named, case) if is_runner else imported(named), seed=seed)
    plain: dict[str, Any] = VALIDATION.write(validation)  # type: ignore[misc]
    return plain


def _ended(case: Case, named: str, seed: int, status: str, how: str, *, is_runner: bool) -> Validation:
    """Return the record of a function whose process has ended, or was ended, before it was judged."""
    from nearpeak.validation import Implementation, recorded

    def never(*_: object, **__: object) -> dict[str, object]:
        raise AssertionError("it has ended a process already")

    reason = f"{how}, so that nothing it computes can be judged"
    tested = Implementation(name=named, call=never, is_runner=is_runner)
    return recorded(case, tested, seed, (CheckResult(check="V1", status=status, reason=reason),))


def imported(text: str) -> "Implementation":
    """Return what `module:function` or `file.py:function` names: a function, or an implementation as it stands."""
    import dataclasses

    from nearpeak.case_tensors.user_functions import function_of, object_of
    from nearpeak.validation import Implementation
    from nearpeak.validation.running.implementation_run import as_implementation

    found = object_of(text, "--implementation")
    given = found if isinstance(found, Implementation) else function_of(text, "--implementation")
    return dataclasses.replace(as_implementation(given), name=text)


def of_runner(name: str, case: Case) -> "Implementation":
    """Return how the runner computes the case; a runner says so by a method `implementation`.

    Raises:
        NotModelledError: it cannot run the case.
        SpecError: it gives no outputs.
    """
    from nearpeak.case_tensors.random_inputs import drawn
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.measurement.outcomes import unable
    from nearpeak.measurement.runners import backend_of
    from nearpeak.measurement.validation_gate import named_implementation
    from nearpeak.validation import pytorch

    if name == "torch_cpu":
        return pytorch(case)
    backend = backend_of(name, Timing())
    reason = (unable(backend, case) or backend.refusal(case)) if hasattr(backend, "prepare") else ""
    if reason:
        raise NotModelledError(f"validate: {reason}")
    found: Implementation | None = None
    if hasattr(backend, "prepare"):
        ledger = backend.prepare(case, drawn(case)).ledger if backend.abilities.converts else ()
        found = named_implementation(case, backend, name, ledger)
    if found is None:
        raise SpecError(
            f"validate: runner {name} gives no outputs of {case.phase} to check; give --implementation module:function"
        )
    return found
