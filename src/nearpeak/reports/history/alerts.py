"""Alerts for the terminal."""

from collections.abc import Sequence

from nearpeak.reports.figure_text import clean, hung, shortened

WIDTH = 80


def alerts_text(rows: Sequence[tuple[int, str, str, str]]) -> str:
    """Return a line for each alert: number, state, who looks after it, title."""
    if not rows:
        return "no alerts\n"
    lines = [f"{'alert':>5}  {'state':<14} {'who':<10} what"]
    for number, status, who, title in rows:
        lines.append(f"{number:>5}  {shortened(status, 14):<14} {shortened(who, 10) or '–':<10} {shortened(title, 46)}")
    return "\n".join(lines) + "\n"


def events_text(head: Sequence[str], rows: Sequence[tuple[str, str, str, str, str]]) -> str:
    """Return an alert with its life: when, who, from which state to which, why."""
    lines = [clean(line) for line in head]
    for time, actor, before, after, note in rows:
        step = clean(after) if before in ("", after) else f"{clean(before)} → {clean(after)}"
        lines.append(f"  {time}  {shortened(actor, 12)}: {step}{f': {clean(note)}' if note else ''}")
    return "\n".join(hung(lines, WIDTH)) + "\n"
