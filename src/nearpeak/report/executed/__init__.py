"""Reports of a trace: one file per format; they format and compute no new figure."""

from nearpeak.report.executed.html import to_html
from nearpeak.report.executed.json import to_json
from nearpeak.report.executed.markdown import to_markdown
from nearpeak.report.executed.terminal import to_terminal

__all__ = ["to_html", "to_json", "to_markdown", "to_terminal"]
