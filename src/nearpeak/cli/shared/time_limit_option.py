"""Option `--within`: a time or rate that a step has to keep, and the exit code that says whether it is expected to."""

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from nearpeak.core.answers.time_limit import NO, OPEN, LimitVerdict, TimeLimit
from nearpeak.errors import INCONCLUSIVE_CODE, SLOWER_CODE, SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.analysis import Analysis

WITHIN = typer.Option(
    None, "--within", help="Say whether a time or rate is met, e.g. 20ms/token, 30fps, 500images/s, '5 ms'. Exit code "
    "0: expected on every target; 10: not; 11: nothing is predicted.",
)  # fmt: skip
_NUMBER = r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*"
_RATE = re.compile(_NUMBER + r"(?P<noun>[a-z]+)\s*/\s*s(?:ec(?:ond)?)?$", re.IGNORECASE)
_FRAMES = re.compile(_NUMBER + r"fps$", re.IGNORECASE)
_TIME = re.compile(_NUMBER + r"(?P<unit>[nmuµ]?s)\s*(?:/\s*(?P<noun>[a-z]+))?$", re.IGNORECASE)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def time_limit(text: str) -> TimeLimit:
    """Return what `--within` asks for.

    >>> limit = time_limit("20ms/token")
    >>> limit.noun, limit.value_s
    ('token', 0.02)
    >>> time_limit("500 images/s").value_s, time_limit("30fps").noun, time_limit("5 ms").noun
    (0.002, 'frame', 'step')
    """
    for pattern, is_rate in ((_RATE, True), (_FRAMES, True), (_TIME, False)):
        match = pattern.match(text.strip())
        value = _number(match["number"]) if match else 0.0
        if match is None or not value > 0:
            continue
        noun = (match.groupdict().get("noun") or ("frame" if is_rate else "step")).lower().removesuffix("s")
        value_s = 1 / value if is_rate else value * _SECONDS[match["unit"].lower()]
        return TimeLimit(text=text, noun=noun, value_s=value_s, is_rate=is_rate)
    raise SpecError(f"--within {text!r}: is no positive time or rate; e.g. 20ms/token, 30fps, 500images/s, '5 ms'")


def _number(text: str) -> float:
    """Return a number; 0 where the text is none, such as 1.2.3."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def exit_code(verdicts: Iterable[LimitVerdict]) -> int:
    """Return 0 where the limit is kept on every target, 10 where not on all, 11 where one is inconclusive."""
    answers = {verdict.answer for verdict in verdicts}
    return SLOWER_CODE if NO in answers else INCONCLUSIVE_CODE if OPEN in answers else 0


def tell_verdicts(analysis: "Analysis", limit: TimeLimit | None) -> None:
    """Say on standard error whether a limit is kept, where standard output holds data."""
    from nearpeak.reports.analysis_document import verdict_lines

    sys.stderr.writelines(f"{line}\n" for line in (verdict_lines(analysis, limit) if limit is not None else ()))
