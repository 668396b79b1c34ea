"""Outcome of a case: wrong results, unsupported by the runner, or what an exception means."""

from typing import Any

from nearpeak.case_tensors.user_functions import EndedError, exception_text
from nearpeak.core.runs.measurement import Outcome
from nearpeak.core.runs.runner_protocols import Backend
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NearpeakError

_NOT_WRONG = ("FALLBACK", "DEGENERATE_CASE", "INVALID_REFERENCE")
_NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "out of memory")


def is_wrong(record: Any) -> bool:
    """Return whether a validation record shows wrong results.

    Degenerate cases, invalid references and fallbacks do not.
    """
    return record is not None and any(result.failed and result.status not in _NOT_WRONG for result in record.results)


def outcome_of_record(record: Any) -> Outcome:
    """Return the outcome of a case whose validation failed: wrong results, unless it raised wherever it failed."""
    statuses = {result.status for result in record.results if result.failed}
    if statuses == {"CRASH"}:
        return Outcome.FAILED
    return {"UNSUPPORTED": Outcome.UNSUPPORTED, "OOM": Outcome.OOM}.get(record.status, Outcome.INCORRECT)


def unsupported_reason(backend: Backend, case: Case) -> str:
    """Return why the declared abilities of `backend` exclude `case`; empty when they do not."""
    able = backend.abilities
    if case.phase not in able.phases:
        return f"{backend.name} has no {case.phase} phase; it has {', '.join(able.phases)}"
    if able.ops is not None and case.op not in able.ops:
        return f"{backend.name} does not run {case.op}"
    if able.dtypes is not None:
        lacking = sorted({dtype for _, dtype in case.dtypes} - able.dtypes)
        if lacking:
            return f"{backend.name} has no {', '.join(lacking)}"
    if case.memory and not able.places:
        return f"{backend.name} takes dense inputs only; the case has {case.lies()}"
    return ""


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome of a case that ended in `error`."""
    from nearpeak.validation.running.implementation_run import refuses

    if isinstance(error, EndedError):
        return error.outcome
    if isinstance(error, MeasureError):
        return Outcome.INFRA
    if refuses(error):
        return Outcome.UNSUPPORTED
    return Outcome.OOM if any(sign in exception_text(error) for sign in _NO_MEMORY) else Outcome.FAILED


def first_line(error: BaseException) -> str:
    """Return the first line of `error`, after its type where it is not one of nearpeak's own."""
    lines = [line.strip() for line in exception_text(error).splitlines() if line.strip()]
    text = lines[0][:300] if lines else ""
    if isinstance(error, (NearpeakError, EndedError)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
