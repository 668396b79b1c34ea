"""What a gate says as Markdown for a pull request, with a marker by which the comment is found and edited."""

import re

from nearpeak.core.history.gate import FAIL, PASS, GateLine, GateResult
from nearpeak.reports.analysis.markdown import name_cell, prose, table
from nearpeak.reports.figure_text import clean

MOST_ROWS = 60
"""Lines shown: a comment holds 65,536 characters."""
_SIGNS = {"pass": "✅", "fail": "❌", "inconclusive": "❔"}


def marker(name: str) -> str:
    """Return the invisible first line of a policy's comment, the same for every run of it.

    >>> marker("my kernels --> x")
    '<!-- nearpeak-gate:my-kernels-x -->'
    """
    return f"<!-- nearpeak-gate:{re.sub('[^A-Za-z0-9_.]+', '-', name).strip('-')} -->"


def render(result: GateResult) -> str:
    """Return the result as Markdown; the same result gives the same text, so that an edit changes only what changed."""
    counts = {kind: sum(one.verdict == kind for one in result.lines) for kind in _SIGNS}
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    head = f"## {_SIGNS[result.verdict]} Performance: {result.verdict}"
    blocks = [marker(result.policy.name), head, f"{prose(result.policy.name)} at {name_cell(result.revision)}: {said}."]
    wrong = [one for one in result.lines if one.verdict != PASS]
    if wrong:
        blocks.append(_rows(wrong))
    fine = [one for one in result.lines if one.verdict == PASS]
    if fine:
        blocks.append(f"<details><summary>{len(fine)} pass</summary>\n\n{_rows(fine)}\n\n</details>")
    return "\n\n".join(blocks) + "\n"


def _rows(lines: list[GateLine]) -> str:
    rows = [_row(one) for one in lines[:MOST_ROWS]]
    text = table(("", "series", "rule", "why"), rows)
    more = len(lines) - MOST_ROWS
    return f"{text}\n\n{more} more, in the other reports of this run." if more > 0 else text


def _row(line: GateLine) -> tuple[str, str, str, str]:
    sign = _SIGNS[FAIL] if line.exit_code == 10 else _SIGNS[line.verdict]
    return (sign, name_cell(line.series or "–"), prose(clean(line.rule)), prose(clean(line.text)))
