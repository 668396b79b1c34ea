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


CHECKS: tuple[Check, ...] = tuple(
    importlib.import_module(f"nearpeak.validation.checks.{path.stem}").CHECK
    for path in sorted(Path(__file__).parent.glob("v[0-9]*.py"))
)
"""All checks, in the order of their numbers."""
