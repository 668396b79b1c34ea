"""Reports of a comparison, one file per format, and the texts that they share."""

from nearpeak.report.comparison.json import to_json
from nearpeak.report.comparison.markdown import to_markdown
from nearpeak.report.comparison.terminal import to_terminal

__all__ = ["to_json", "to_markdown", "to_terminal"]
