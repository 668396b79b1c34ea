"""Reports of a gate, one file per format."""

from typing import Protocol

from nearpeak.base.registry import Registry
from nearpeak.core.history.gate import GateResult


class RenderGate(Protocol):
    """Renderer of a gate's decision as text."""

    def __call__(self, result: GateResult) -> str:
        """Return the report."""


GATE_FORMATS: Registry[RenderGate] = Registry.of_modules(
    "render", kind="format", package=__name__, file=__file__, group="nearpeak.gate_formats"
)
"""All formats by name; adding one is adding a file with a `render(result)`."""
