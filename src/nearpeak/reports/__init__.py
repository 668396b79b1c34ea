"""Reports of an analysis: one file per format, found by file stem; they format and compute no new figure."""

from typing import Protocol

from nearpeak.base.registry import Registry
from nearpeak.core.answers.analysis import Analysis

__all__ = ["FORMATS", "Render", "render"]


class Render(Protocol):
    """Renderer of an analysis as text; a format may add further options."""

    def __call__(self, analysis: Analysis) -> str:
        """Return the report."""


FORMATS: Registry[Render] = Registry.of_modules(
    "render", kind="format", package=__name__, file=__file__, group="nearpeak.formats", pattern="analysis/*.py"
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
