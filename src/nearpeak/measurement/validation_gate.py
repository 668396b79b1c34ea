"""Validation of a runner's results before it is timed, if the package has validation."""

import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from nearpeak.case_tensors.size_limits import beyond_rounds
from nearpeak.case_tensors.user_functions import EndedError, exception_text
from nearpeak.core.runs.measurement import Backend, Fallback, Outcome
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
    """Return why the contract says nothing of what `backend` computes; empty where it does, or is what it computes."""
    if backend.is_reference:
        return ""
    if backend.implementation(case) is None:
        return f"{backend.name} gives no gradients that could be compared"
    return beyond_rounds(case)


def validated(case: Case, backend: Backend, name: str, ledger: tuple[Fallback, ...] = ()) -> Any:
    """Return the record of the contract on what `backend` computes; none where it was not checked.

    Args:
        name: of the runner, with its argument: how the record's command calls it.
        ledger: what did not run where it was meant to.

    Raises:
        EndedError: the runner knows itself what becomes of the case: of a program that breaks its protocol no result
            is wrong, there is none.
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
    """Return how `backend` computes `case`, with the ledger of what it converts; none where it gives no outputs."""
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
    """Return `tested` that answers no further round once it has ended, or memory has run out: that takes long again.

    What a framework says of memory in words of its own, such as a RuntimeError of PyTorch, becomes a MemoryError.

    Args:
        ended: where it is kept that it has ended.
    """
    gone: list[str] = []

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call, updated=())
        def asked(*args: Any, **named: Any) -> Any:
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

        return asked

    backward = None if tested.backward is None else guarded(tested.backward)
    return dataclasses.replace(tested, call=guarded(tested.call), backward=backward)
