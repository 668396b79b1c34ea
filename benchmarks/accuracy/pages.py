"""Generated pages of docs/lab, each with the date and the commit of the run that wrote it."""

from datetime import UTC, datetime
from pathlib import Path

from benchmarks._figures import FOLDER
from benchmarks.run import commit_of_sources

PAGES = FOLDER.parent
"""Folder of the generated pages."""


def write_page(path: Path, text: str) -> None:
    """Write a page whose second paragraph says when and on what sources its figures were taken."""
    title, _, rest = text.partition("\n")
    line = taken(datetime.now(tz=UTC).date().isoformat(), commit_of_sources())
    path.write_text(f"{title}\n\n{line}\n{rest}", encoding="utf-8")


def taken(day: str, commit: str) -> str:
    """Return the line that says when the figures of a page were taken.

    >>> taken("2026-11-30", "0123abcd")
    'Taken on 2026-11-30 at commit 0123abcd.'
    """
    return f"Taken on {day} at commit {commit}."
