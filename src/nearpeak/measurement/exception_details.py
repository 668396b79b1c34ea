"""Full text of exceptions, kept as details beside the one-line note of a measurement."""

import contextlib
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

from nearpeak.case_tensors.user_functions import RAISED

MOST_LINES = 40
"""Lines that are kept, the last ones: what a compiler has to say stands at the end."""
_LONGEST_LINE = 300
_OWN = str(Path(__file__).parents[1])


class ExceptionLog(logging.Handler):
    """What the exceptions say that were asked: not themselves, which hold on to all that their frames do."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__(logging.DEBUG)
        self._said: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Take the exception of a record, unless another one has begun alike."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (first := _first_line(error)) not in self._said:
            with contextlib.suppress(MemoryError):  # where it has run out there may be none for its lines either
                summary = traceback.TracebackException.from_exception(error)
                _leave_out_own(summary)
                self._said[first] = last_lines("".join(summary.format()))

    def details(self, note: str) -> str:
        """Return the last lines of the first exception that `note` quotes; empty where it quotes none."""
        return next((text for first, text in self._said.items() if first in note), "")


@contextlib.contextmanager
def exception_log() -> Iterator[ExceptionLog]:
    """Keep the exceptions that are caught meanwhile, however deep, and become notes."""
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
    """Leave the frames of nearpeak out of a traceback and of those behind it, where others are left."""
    others = [frame for frame in summary.stack if not frame.filename.startswith(_OWN)]
    summary.stack = traceback.StackSummary.from_list(others or summary.stack)
    for behind in filter(None, (summary.__cause__, summary.__context__)):
        _leave_out_own(behind)


def _first_line(error: BaseException) -> str:
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # one of the user's may fail at that too
        lines = []
    return lines[0][:_LONGEST_LINE] if lines else type(error).__name__
