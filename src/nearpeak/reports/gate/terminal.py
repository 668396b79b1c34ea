"""A gate decision for the terminal: failures first, passes in one line."""

from nearpeak.core.history.gate import GateResult
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.gate_document import document_of


def render(result: GateResult) -> str:
    """Return the result as text of at most 80 columns."""
    return to_terminal(document_of(result))
