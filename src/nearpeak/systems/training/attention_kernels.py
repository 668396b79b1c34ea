"""Shares of the documented rate that attention kernels of a library reach, by architecture and pass."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.base.input_files import toml_of_file
from nearpeak.errors import SpecError

AS_PREDICTED = "as-predicted"
"""Library whose kernels are those that predictions are measured on."""
_FILE = Path(__file__).with_name("attention_kernels.toml")


class AttentionShare(NamedTuple):
    """Shares of the documented rate."""

    forward: float
    """Forward pass."""
    backward: float
    """Backward pass."""
    source: str
    """Where they come from."""


def attention_libraries() -> tuple[str, ...]:
    """Return the names of all libraries.

    >>> "flash-2" in attention_libraries()
    True
    """
    return (AS_PREDICTED, *sorted(_table()))


def attention_share(library: str, architecture: str) -> AttentionShare | None:
    """Return what a library reaches on an architecture; none where nothing is stated, so that predictions stand.

    Raises:
        SpecError: no library has the name.

    >>> attention_share("flash-2", "hopper").forward, attention_share("flash-2", "cdna3")
    (0.35, None)
    """
    if library == AS_PREDICTED:
        return None
    if library not in _table():
        raise SpecError(f"attention {library!r} is not one of {', '.join(attention_libraries())}")
    for name, row in _table()[library].items():
        if architecture.startswith(name):
            return AttentionShare(row["forward"], row["backward"], row["source"])
    return None


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return toml_of_file(_FILE)
