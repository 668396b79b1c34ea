"""Full text of exceptions, kept as details beside the one-line note of a measurement."""

import contextlib
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

from nearpeak.case_tensors.user_functions import RAISED

MOST_LINES = 40
"""Number of last lines that are kept: compilers report the cause at the end."""
_LONGEST_LINE = 300
_OWN = str(Path(__file__).parents[1])


class ExceptionLog(logging.Handler):
    """Log handler that keeps the text of exceptions, not the exceptions, which would keep their frames alive."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(logging.DEBUG)
        self._said: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Store the exception of a record, unless one with the same first line is stored."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (first := _first_line(error)) not in self._said:
            with contextlib.suppress(MemoryError):  # after an out-of-memory error there may be no memory for its text
                summary = traceback.TracebackException.from_exception(error)
                _leave_out_own(summary)
                self._said[first] = last_lines("".join(summary.format()))

    def details(self, note: str) -> str:
        """Return the last lines of the first stored exception that `note` quotes; empty where it quotes none."""
        return next((text for first, text in self._said.items() if first in note), "")


@contextlib.contextmanager
def exception_log() -> Iterator[ExceptionLog]:
    """Collect the text of exceptions that are caught inside the block, at any depth, and become notes."""
    log, level, propagates = ExceptionLog(), RAISED.level, RAISED.propagate
    RAISED.addHandler(log)
    RAISED.setLevel(logging.DEBUG)
    RAISED.propagate = False
    try:
        yield log
    finally:
        RAISED.removeHandler(log)
        RAISED.setLevel(level)
        RAISED.propagate = propagates


def last_lines(text: str) -> str:
    r"""Return the last lines of a text, long ones cut.

    >>> last_lines("a\nb\n\n")
    'a\nb'
    """
    return "\n".join(line[:_LONGEST_LINE] for line in text.rstrip().splitlines()[-MOST_LINES:])


def _leave_out_own(summary: traceback.TracebackException) -> None:
    """Remove nearpeak's frames from a traceback and its causes, unless there are no others."""
    others = [frame for frame in summary.stack if not frame.filename.startswith(_OWN)]
    summary.stack = traceback.StackSummary.from_list(others or summary.stack)
    for behind in filter(None, (summary.__cause__, summary.__context__)):
        _leave_out_own(behind)


def _first_line(error: BaseException) -> str:
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # a user's exception may fail in __str__
        lines = []
    return lines[0][:_LONGEST_LINE] if lines else type(error).__name__
