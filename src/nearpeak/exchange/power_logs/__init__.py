"""Power logs of other tools as telemetry: one file per format, detected from its first lines."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from nearpeak.base.input_files import border, bytes_of_file, check_line_count, in_utf8
from nearpeak.base.registry import Registry
from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange.file_kinds import described

__all__ = ["LOGS", "read_log"]
_HEAD_BYTES = 4096


class LogFormat(Protocol):
    """A format of power logs."""

    def recognises(self, head: str, /) -> bool:
        """Return whether a file that begins with `head` is of this format."""
        ...

    def read(self, text: str, where: str, interval_s: float | None, /) -> Telemetry:
        """Return the readings of a log; `interval_s` is the time between lines without timestamps."""
        ...


LOGS: Registry[LogFormat] = Registry.of_modules(
    "LOG", kind="power log", package=__name__, file=__file__, group="nearpeak.power_logs"
)
"""All formats by name."""


_TABLES = ("jetson_summary", "nvidia_smi", "rocm_smi", "table", "zeus", "zeus_trace")
"""Formats with as many cells in each line as in the first."""
_CUT = "the last line has fewer cells than the header and is left out"


@border("power log")
def read_log(path: Path, interval_s: float | None = None) -> Telemetry:
    """Return the readings of a power log, whose format is detected from its first lines.

    Args:
        interval_s: time between two lines, for logs without timestamps; otherwise unused.

    Raises:
        SpecError: no format is recognised, a line is not of its format, or there are too many.
    """
    data = in_utf8(bytes_of_file(path))
    text = data.decode("utf-8", "replace")
    check_line_count(text, path)
    for name in LOGS:
        if LOGS[name].recognises(text[:_HEAD_BYTES]):
            telemetry, lines = LOGS[name].read(text, str(path), interval_s), text.strip().splitlines()
            cut = _CUT if name in _TABLES and lines[-1].count(",") < lines[0].count(",") else ""
            return replace(telemetry, note="; ".join(filter(None, (cut, telemetry.note)))) if cut else telemetry
    if words := described(data, path.name):
        raise SpecError(f"{path}: {words}")
    raise SpecError(
        f"{path}: no known power-log format; there are {', '.join(LOGS)}; a table begins with a column time_s, t_ms "
        "or so, and its other columns end in units: power_w, temp_c"
    )
