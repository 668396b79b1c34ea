"""What can time a case: one file per runner, and out-of-tree ones by the entry point `nearpeak.runners`."""

import importlib
from collections.abc import Callable
from pathlib import Path

from nearpeak.core.measurement import Runner
from nearpeak.registry import Registry

__all__ = ["RUNNERS"]


def _load(name: str) -> Callable[..., Runner]:
    runner: Callable[..., Runner] = importlib.import_module(f"nearpeak.measure.runners.{name}").RUNNER
    return runner


RUNNERS: Registry[Callable[..., Runner]] = Registry(
    kind="runner", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.runners"
)
"""All runners by name; each is called with `budget_s`, the seconds to sample one case."""
