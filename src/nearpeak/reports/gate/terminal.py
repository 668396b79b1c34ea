"""What a gate says, for the terminal: failures first, what passes in one line."""

from nearpeak.core.history.gate import PASS, GateLine, GateResult
from nearpeak.reports.figure_text import clean, hung, shortened

WIDTH = 80
MOST_LINES = 40
"""Lines that do not pass and are shown."""


def render(result: GateResult) -> str:
    """Return the result as text of at most 80 columns."""
    return "\n".join(hung(_lines(result), WIDTH)) + "\n"


def _lines(result: GateResult) -> list[str]:
    wrong = [one for one in result.lines if one.verdict != PASS]
    passed = len(result.lines) - len(wrong)
    said = [f"{shortened(result.policy.name, 30)} at {shortened(result.revision, 20)}: {result.verdict}"]
    for one in wrong[:MOST_LINES]:
        said += _line(one)
    if len(wrong) > MOST_LINES:
        said.append(f"{len(wrong) - MOST_LINES} more do not pass")
    return [*said, f"{passed} of {len(result.lines)} pass; exit code {result.exit_code}"]


def _line(line: GateLine) -> list[str]:
    sign = "✗" if line.exit_code in (10, 12) else "?"
    return [
        f"{sign} {shortened(line.series or 'no series', WIDTH - 2)}",
        f"  {clean(line.rule)}: {line.verdict}: {clean(line.text)}",
    ]
