"""Reports of a trace: one file per format; they format and compute no new figure."""

from nearpeak.reports.traces.html import to_html
from nearpeak.reports.traces.json import to_json
from nearpeak.reports.traces.markdown import to_markdown
from nearpeak.reports.traces.terminal import to_terminal

__all__ = ["to_html", "to_json", "to_markdown", "to_terminal"]
