"""Retries of a failed capture with configuration and input changes that its error message suggests."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from nearpeak.errors import CaptureError, MissingExtraError
from nearpeak.frontends.huggingface.repairs import UNCHANGED, Trial

T = TypeVar("T")
_Failure = CaptureError | MissingExtraError
BUDGET_S = 12.0
"""CPU time after which no further change is tried."""
_STAGES = ("building the model", "making the inputs", "forward", "backward", "optimizer")


def first_that_runs(run: Callable[[Trial], T], repairs: Callable[[str, Trial], Iterator[Trial]]) -> T:
    """Return the result of the first trial that does not fail.

    A configuration change that leads to a new error at no earlier stage is repaired further; a changed input layout
    either works or is dropped. If nothing helps, the error is that of the unchanged model.

    Raises:
        CaptureError: no change helped.
        MissingExtraError: a package is absent, and nothing can stand in for it.
    """
    ends_s = time.process_time() + BUDGET_S
    seen = set[str]()

    def mended(trial: Trial, error: _Failure) -> T | None:
        seen.add(str(error))
        for candidate in repairs(str(error), trial):
            if time.process_time() > ends_s:
                return None
            result = _failed(run, candidate)
            if not isinstance(result, _Failure):
                return result
            is_new = str(result) not in seen and _stage(result) >= _stage(error)
            further = mended(candidate, result) if is_new and candidate.hints == trial.hints else None
            if further is not None:
                return further
        return None

    first = _failed(run, UNCHANGED)
    if not isinstance(first, _Failure):
        return first
    result = mended(UNCHANGED, first)
    if result is None:
        raise first
    return result


def _failed(run: Callable[[Trial], T], trial: Trial) -> T | _Failure:
    try:
        return run(trial)
    except (CaptureError, MissingExtraError) as error:
        return error


def _stage(error: Exception) -> int:
    return next((index for index, stage in enumerate(_STAGES) if stage in str(error)), -1)
