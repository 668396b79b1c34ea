"""Power logs of other tools as telemetry: one file per format, recognised by its first lines."""

import importlib
from pathlib import Path
from typing import Protocol

from nearpeak.core.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.registry import Registry

__all__ = ["LOGS", "read_log"]
_HEAD_BYTES = 4096


class LogFormat(Protocol):
    """A format of power logs."""

    def recognises(self, head: str) -> bool:
        """Say whether a file that begins with `head` is of this format."""
        ...

    def read(self, text: str, where: str, interval_s: float | None) -> Telemetry:
        """Return what a log says; `interval_s` is the time between two lines that do not say it."""
        ...


def _load(name: str) -> LogFormat:
    found: LogFormat = importlib.import_module(f"nearpeak.exchange.power_logs.{name}").LOG
    return found


LOGS: Registry[LogFormat] = Registry(
    kind="power log", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.power_logs"
)
"""All formats by name."""


def read_log(path: Path, interval_s: float | None = None) -> Telemetry:
    """Return what a power log says, its format found by its first lines.

    Args:
        interval_s: time between two lines, for logs whose lines do not say it; otherwise it is not used.

    Raises:
        SpecError: no format is recognised, or a line is not of its format.
    """
    text = path.read_bytes().decode("utf-8", "replace").removeprefix("\ufeff")
    for name in LOGS:
        if LOGS[name].recognises(text[:_HEAD_BYTES]):
            return LOGS[name].read(text, str(path), interval_s)
    raise SpecError(
        f"{path}: no power log that is known; there are {', '.join(LOGS)}; a table begins with a column time_s, t_ms "
        "or so, and its other columns end in units: power_w, temp_c"
    )
