"""Validation of a runner's results before it is timed, if the package has validation."""

import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from nearpeak.case_tensors.size_limits import beyond_rounds
from nearpeak.case_tensors.user_functions import EndedError, exception_text
from nearpeak.core.runs.measurement import Fallback, Outcome
from nearpeak.core.runs.runner_protocols import Backend
from nearpeak.core.work.case import Case
from nearpeak.measurement.outcomes import outcome_of


@functools.cache
def installed_validate() -> Callable[..., Any] | None:
    """Return `validate(case, implementation, seed=…)`, whose record has `status` and `failed`; none without it."""
    if importlib.util.find_spec("nearpeak.validation") is None:
        return None
    validate: Callable[..., Any] | None = getattr(importlib.import_module("nearpeak.validation"), "validate", None)
    return validate


def reason_unchecked(case: Case, backend: Backend) -> str:
    """Return why results of `backend` are not validated; empty where they are, or where it is the reference itself."""
    if backend.is_reference:
        return ""
    if backend.implementation(case) is None:
        return f"{backend.name} gives no gradients that could be compared"
    return beyond_rounds(case)


def validated(case: Case, backend: Backend, name: str, ledger: tuple[Fallback, ...] = ()) -> Any:
    """Return the validation record of `backend`'s results; none where they are not validated.

    Args:
        name: name of the runner with its argument, as in the record's command.
        ledger: nodes that ran elsewhere than intended.

    Raises:
        EndedError: the runner itself states the outcome: a program that breaks its protocol has no results.
    """
    validate = installed_validate()
    if validate is None or beyond_rounds(case):
        return None
    tested = named_implementation(case, backend, name, ledger)
    if tested is None:
        return None
    ended: list[EndedError] = []
    record = validate(case, _until_it_ends(tested, ended), seed=0)
    if ended:
        raise ended[0]
    return record


def named_implementation(case: Case, backend: Backend, name: str, ledger: tuple[Fallback, ...] = ()) -> Any:
    """Return `backend`'s implementation of `case` with the ledger of its conversion; none where it has no outputs."""
    from nearpeak.validation.running.implementation_run import as_implementation

    computed = backend.implementation(case)
    if computed is None:
        return None
    tested = dataclasses.replace(as_implementation(computed), name=name, is_runner=True)
    if not (ledger or backend.abilities.converts):
        return tested
    rows = tuple({**dataclasses.asdict(row), "target": row.ran_on} for row in ledger)
    return dataclasses.replace(tested, ledger=rows)


def _until_it_ends(tested: Any, ended: list[EndedError]) -> Any:
    """Return `tested`, which fails at once in further rounds after it has ended or memory has run out.

    Out-of-memory errors of frameworks, such as a RuntimeError of PyTorch, become a MemoryError.

    Args:
        ended: list that gets the error with which it ended.
    """
    gone: list[str] = []

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call, updated=())
        def guarded_call(*args: Any, **named: Any) -> Any:
            if ended:
                raise ended[0]
            if not gone:
                try:
                    return call(*args, **named)
                except EndedError as error:
                    ended.append(error)
                    raise
                except Exception as error:
                    if not isinstance(error, MemoryError) and outcome_of(error) is not Outcome.OOM:
                        raise
                    gone.append(exception_text(error))
            raise MemoryError(*filter(None, gone))

        return guarded_call

    backward = None if tested.backward is None else guarded(tested.backward)
    return dataclasses.replace(tested, call=guarded(tested.call), backward=backward)
