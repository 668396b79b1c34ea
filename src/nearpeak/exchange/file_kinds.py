"""Recognition of input files that a command cannot read: what kind a file is, and which command or file fits."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

HEAD_BYTES = 1 << 16
"""First bytes that are looked at."""


class FileKind(NamedTuple):
    """A kind of files."""

    what: str
    """What it is, with its article."""
    instead: str
    """What to give or do instead."""
    begins: re.Pattern[bytes] | None
    """Begin of every such file; none where names alone tell."""
    holds: re.Pattern[bytes] | None
    """Something that the first bytes of every such file hold; none where names alone tell."""
    ends: tuple[str, ...]
    """Ends of the names of such files."""


@cache
def file_kinds() -> tuple[FileKind, ...]:
    """Return the kinds in the order of the table."""
    table = tomllib.loads(Path(__file__).with_name("file_kinds.toml").read_text("utf-8"))["kind"]
    return tuple(
        FileKind(
            what=kind["what"], instead=kind["instead"], begins=_compiled(kind.get("begins")),
            holds=_compiled(kind.get("holds")), ends=tuple(kind.get("ends", ())),
        )
        for kind in table
    )  # fmt: skip


def _compiled(pattern: str | None) -> re.Pattern[bytes] | None:
    return None if pattern is None else re.compile(pattern.encode("latin-1"), re.DOTALL | re.MULTILINE)


def described(head: bytes, name: str) -> str:
    """Return what a file is and what to give instead, as the rest of a sentence about it; empty where it is not known.

    Args:
        head: its first bytes, unpacked.
        name: its name, whose end may tell.

    >>> described(b"PERFILE2", "perf.data")
    "is a recording of Linux perf; it samples the host; give a profiler's trace to 'nearpeak analyze'"
    >>> described(b"hello", "notes.txt")
    ''
    """
    head, name = head[:HEAD_BYTES].removeprefix(b"\xef\xbb\xbf"), name.lower().removesuffix(".gz")
    for kind in file_kinds():
        by_bytes = (kind.begins is not None and kind.begins.match(head)) or (
            kind.holds is not None and kind.holds.search(head)
        )
        if by_bytes or (kind.ends and name.endswith(kind.ends)):
            return f"is {kind.what}; {kind.instead}"
    return ""
