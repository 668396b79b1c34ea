"""Document of a gate decision: failing series first, passing series folded away."""

import re
from collections.abc import Sequence

from nearpeak.core.history.gate import FAIL, INCONCLUSIVE, PASS, GateLine, GateResult
from nearpeak.errors import INCORRECT_CODE, SLOWER_CODE
from nearpeak.reports.document import Block, Cell, Details, Document, Span, Table, Text, columns

MOST_ROWS = 60
"""Lines shown of each kind: a comment on a code host holds 65,536 characters."""
_SIGNS = {PASS: "✓", FAIL: "✗", INCONCLUSIVE: "?"}
_STYLES = {PASS: "good", FAIL: "bad", INCONCLUSIVE: "warn"}


def document_of(result: GateResult) -> Document:
    """Return the result as a document; the same result gives the same one, so that an edit changes what changed."""
    wrong = [line for line in result.lines if line.verdict != PASS]
    right = [line for line in result.lines if line.verdict == PASS]
    counts = {kind: sum(line.verdict == kind for line in result.lines) for kind in _SIGNS}
    counts_text = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    passed = f"{len(right)} of {len(result.lines)} pass; exit code {result.exit_code}"
    blocks: list[Block] = [
        Text((f"{result.policy.name} at ", Span(result.revision[:20], "code"), f": {counts_text}")),
        *_rows(wrong),
        Details(passed, tuple(_rows(right))) if right else passed,
    ]  # fmt: skip
    return Document(
        title=f"{_SIGNS[result.verdict]} Performance: {result.verdict}", blocks=blocks, kicker="Gate",
        mark=marker(result.policy.name),
    )  # fmt: skip


def marker(name: str) -> str:
    """Return the invisible first line of a policy's comment, the same for every run of it.

    >>> marker("my kernels --> x")
    '<!-- nearpeak-gate:my-kernels-x -->'
    """
    return f"<!-- nearpeak-gate:{re.sub('[^A-Za-z0-9_.]+', '-', name).strip('-')} -->"


def _rows(lines: Sequence[GateLine]) -> list[Block]:
    if not lines:
        return []
    kinds = [FAIL if line.exit_code in (SLOWER_CODE, INCORRECT_CODE) else line.verdict for line in lines[:MOST_ROWS]]
    rows = [
        (
            Cell(value=line.verdict, text=_SIGNS[kind], kind=_STYLES[kind]),
            line.series or "no series",
            line.rule,
            line.text,
        )
        for kind, line in zip(kinds, lines, strict=False)
    ]
    table = Table(columns=columns("sign|", "`series|series", ">rule", ">why"), rows=rows)
    more = len(lines) - MOST_ROWS
    return [table, f"{more} more, in the other reports of this run" if more > 0 else ""]
