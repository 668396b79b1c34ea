"""Registry of adapters that probe an external operator package for known defects; plug-ins register by entry point."""

import importlib
from pathlib import Path
from typing import Any

from nearpeak.base.registry import Registry


def _load(name: str) -> Any:
    return importlib.import_module(f"nearpeak.validation.adapters.{name}")


ADAPTERS: Registry[Any] = Registry(
    kind="package", files=Path(__file__).parent.glob("*.py"), load=_load, group="nearpeak.adapters"
)
"""Modules with `PROBES`, the questions; `installed()`, the package; `divergences(package)`, the wrong answers."""
