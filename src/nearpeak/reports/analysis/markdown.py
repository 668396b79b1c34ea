"""An analysis as compact Markdown, for a pull request or a wiki."""

from nearpeak.core.answers.analysis import Analysis
from nearpeak.reports.analysis_document import document_of
from nearpeak.reports.document.markdown import to_markdown


def render(analysis: Analysis) -> str:
    """Return the report as Markdown."""
    return to_markdown(document_of(analysis))
