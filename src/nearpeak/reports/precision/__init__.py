"""Reports of mixed precision, expected and executed: text for a terminal, JSON, and one HTML page."""

from nearpeak.reports.precision.executed import executed_to_terminal, gap_to_terminal
from nearpeak.reports.precision.html import to_html
from nearpeak.reports.precision.json import executed_to_json, to_json
from nearpeak.reports.precision.terminal import to_terminal

__all__ = ["executed_to_json", "executed_to_terminal", "gap_to_terminal", "to_html", "to_json", "to_terminal"]
