"""Reports of what mixed precision is expected to gain: text for a terminal, and JSON."""

from nearpeak.report.precision.json import to_json
from nearpeak.report.precision.terminal import to_terminal

__all__ = ["to_json", "to_terminal"]
