"""Registry of telemetry sources: one file per source, and plug-ins by entry point."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from nearpeak.base.registry import Registry
from nearpeak.core.runs.telemetry import Channel

__all__ = ["SOURCES", "Source", "Unavailable", "known", "opened"]


class Unavailable(Exception):  # noqa: N818  # an answer, not an error: this machine has no such sensor
    """Reason why a source is unavailable on this machine."""


class Source(Protocol):
    """Sensors that are read together."""

    name: str
    """Stem of its file."""
    most_hz: float
    """Highest rate at which readings carry new information."""
    channels: tuple[Channel, ...]
    """Channels of a reading, in order; those of unreadable sensors have a status with the reason."""

    def read(self) -> Sequence[float]:
        """Return one value per channel, NaN where there is none."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


SOURCES: Registry[Callable[[Path], Source]] = Registry.of_modules(
    "SOURCE", kind="telemetry source", package=__name__, file=__file__, group="nearpeak.telemetry"
)
"""All sources by name; each is called with the folder that replaces `/`, and may raise Unavailable."""


def known(names: Sequence[str]) -> list[str]:
    """Return `names`, or the names of all sources if it is empty.

    Raises:
        UnknownNameError: one is no source.
    """
    for name in names:
        SOURCES[name]
    return list(dict.fromkeys(names)) or list(SOURCES)


def opened(names: Sequence[str], root: str) -> tuple[list[Source], list[tuple[str, str]]]:
    """Return the sources that this machine has, and why the others are unavailable."""
    sources, missing = [], []
    for name in names:
        try:
            source = SOURCES[name](Path(root))
        except Unavailable as why:
            missing.append((name, str(why)))
        except Exception as error:  # a broken driver of one vendor must not cost the readings of the others
            missing.append((name, f"{type(error).__name__}: {error}".splitlines()[0]))
        else:
            sources.append(source)
    return sources, missing
