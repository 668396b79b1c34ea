"""A gate decision as Markdown for a pull request, with a marker that identifies the comment for later edits."""

from nearpeak.core.history.gate import GateResult
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.gate_document import document_of


def render(result: GateResult) -> str:
    """Return the result as Markdown."""
    return to_markdown(document_of(result))
