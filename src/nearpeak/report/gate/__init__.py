"""Reports of a gate, one file per format."""

import importlib
from pathlib import Path
from typing import Protocol

from nearpeak.core.gate import GateResult
from nearpeak.registry import Registry


class RenderGate(Protocol):
    """How a format turns what a gate says into text."""

    def __call__(self, result: GateResult) -> str:
        """Return the report."""


def _load(name: str) -> RenderGate:
    found: RenderGate = importlib.import_module(f"nearpeak.report.gate.{name}").render
    return found


GATE_FORMATS: Registry[RenderGate] = Registry(
    kind="format", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.gate_formats"
)
"""All formats by name; adding one is adding a file with a `render(result)`."""
