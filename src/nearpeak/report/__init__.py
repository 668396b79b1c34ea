"""Reports of an analysis: one file per format, found by its stem; they format and compute no new figure."""

import importlib
from pathlib import Path
from typing import Protocol

from nearpeak.core.analysis import Analysis
from nearpeak.registry import Registry

__all__ = ["FORMATS", "Render", "render"]


class Render(Protocol):
    """How a format turns an analysis into text; a format may add options of its own."""

    def __call__(self, analysis: Analysis) -> str:
        """Return the report."""


def _load(name: str) -> Render:
    found: Render = importlib.import_module(f"nearpeak.report.{name}").render
    return found


FORMATS: Registry[Render] = Registry(
    kind="format", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.formats"
)
"""All formats by name; adding one is adding a file with a `render(analysis)`."""


def render(analysis: Analysis, name: str) -> str:
    """Return the report of `analysis` in the format called `name`.

    Raises:
        UnknownNameError: no such format; the closest names are listed.

    >>> FORMATS.names()
    ('html', 'json', 'markdown', 'terminal')
    """
    return FORMATS[name](analysis)
