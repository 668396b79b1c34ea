"""Reports of a comparison, one file per format, and the texts that they share."""

from nearpeak.reports.comparison.json import to_json
from nearpeak.reports.comparison.markdown import to_markdown
from nearpeak.reports.comparison.terminal import to_terminal

__all__ = ["to_json", "to_markdown", "to_terminal"]
