"""Reports of mixed precision, expected and executed: text for a terminal, JSON, and one HTML page."""

from nearpeak.report.precision.executed import executed_to_terminal, gap_to_terminal
from nearpeak.report.precision.html import to_html
from nearpeak.report.precision.json import executed_to_json, to_json
from nearpeak.report.precision.terminal import to_terminal

__all__ = ["executed_to_json", "executed_to_terminal", "gap_to_terminal", "to_html", "to_json", "to_terminal"]
