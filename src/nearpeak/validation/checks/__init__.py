"""The validation checks V0 to V12 in order: one file per check, each of which defines CHECK."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.core.runs.validation import CheckResult

if TYPE_CHECKING:
    from nearpeak.validation.running.trial import Trial

__all__ = ["CHECKS"]

Check = Callable[["Trial"], CheckResult]


def _load(stem: str) -> Check:
    check: Check = importlib.import_module(f"nearpeak.validation.checks.{stem}").CHECK
    return check


def _stems() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("v[0-9]*.py"))


CHECKS: tuple[Check, ...] = tuple(_load(stem) for stem in _stems())
"""All checks, in order of their numbers."""
