"""Text cells of CSV files: what a spreadsheet would run as a formula is made plain text."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

_SIGNS = "=+-@"
_IGNORED = "".join(
    c for c in map(chr, (*range(0x2100), 0x3000, 0xFEFF)) if c.isspace() or unicodedata.category(c) in ("Cc", "Cf")
)
"""Blanks, control characters and marks without width."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)")
T = TypeVar("T")


def plain_cell(value: T) -> T | str:
    r"""Return a cell as spreadsheets may see it: a text that they would take for a formula begins with an apostrophe.

    These begin with =, +, - or @, in full width too, also behind blanks, control characters and marks without width.
    Numbers are none.

    >>> [plain_cell(cell) for cell in ("gemm", "=1+1", "\t@A1", "\u200b=1", "\uff0b1", "-1.5e3", "-", -2)]
    ['gemm', "'=1+1", "'\t@A1", "'\u200b=1", "'\uff0b1", '-1.5e3', '-', -2]
    """
    if not isinstance(value, str) or not may_be_formula(value[:1]):
        return value
    text = value.lstrip(_IGNORED)
    is_formula = len(text) > 1 and unicodedata.normalize("NFKC", text[0])[:1] in _SIGNS and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def may_be_formula(first: str) -> bool:
    """Say whether a cell with this first character may be a formula: most cells need no further look.

    >>> [may_be_formula(first) for first in ("a", "7", "=", " ", "")]
    [False, False, True, True, False]
    """
    return bool(first) and not first.isalnum()


def plain_cells(cells: Sequence[T]) -> list[T | str]:
    """Return cells as spreadsheets may see them.

    >>> plain_cells(["=a", 1])
    ["'=a", 1]
    """
    return [plain_cell(cell) for cell in cells]
