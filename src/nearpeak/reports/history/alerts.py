"""Documents of alerts: a list of alerts, and the life of one."""

from collections.abc import Sequence

from nearpeak.reports.document import Document, Table, columns
from nearpeak.reports.figure_text import shortened


def alerts_document(rows: Sequence[tuple[int, str, str, str]]) -> Document:
    """Return a line for each alert: number, state, person in charge, title."""
    cells = [(number, status, who or "–", title) for number, status, who, title in rows]
    heads = columns("#alert", "state", "who", "what")
    return Document(blocks=[Table(columns=heads, rows=cells)] if rows else ["no alerts"])


def events_document(head: Sequence[str], rows: Sequence[tuple[str, str, str, str, str]]) -> Document:
    """Return an alert with its history: time, actor, states before and after, reason."""
    lines = []
    for time, actor, before, after, note in rows:
        step = after if before in ("", after) else f"{before} → {after}"
        lines.append(f"  {time}  {shortened(actor, 12)}: {step}{f': {note}' if note else ''}")
    return Document(blocks=[*head, *lines])
