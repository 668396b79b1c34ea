"""An analysis for the terminal."""

from nearpeak.core.answers.analysis import Analysis
from nearpeak.reports.analysis_document import document_of
from nearpeak.reports.document.terminal import to_terminal


def render(analysis: Analysis, *, colour: bool = False, width: int = 80, why: bool = False) -> str:
    """Return the report as text: the answer within 25 lines.

    Args:
        colour: whether to colour it; leave it off where the text goes into a pipe or file.
        width: columns of the terminal; fewer than 80 are taken as 80.
        why: whether to write what the answer rests on, too.
    """
    return to_terminal(document_of(analysis), colour=colour, width=width, is_unfolded=why)
