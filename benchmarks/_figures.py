"""One measured figure with its bar, and where figures are kept.

A benchmark is a file of this folder without a leading underscore that defines

    FIGURES = ("gemm_bounds_rate",)          # the names it measures, so that measured ones can be skipped

    def measure() -> Iterator[Figure]:       # yields each figure as soon as it is known
        yield Figure(name="gemm_bounds_rate", value=5.6e6, unit="bounds/s", bar=">= 5,000,000", passed=True, seed=0)

`make bench` runs them all (`python -m benchmarks.run`, or with names of files to run only those).
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "lab" / "figures"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that was measured, and what it had to be."""

    name: str
    """Stem of its file in docs/lab/figures; lower case and underscores."""
    value: float
    """What was measured, in `unit`."""
    unit: str
    """Unit for people, e.g. `s`, `MB`, `bounds/s`, `rows`; empty for a plain count."""
    bar: str
    """What was asked, e.g. `<= 10 s`; empty when nothing was."""
    passed: bool
    """Whether the value reaches the bar."""
    seed: int | None = None
    """Seed of the sample; none when nothing is drawn."""

    def __post_init__(self) -> None:
        """Refuse a name that is no file stem."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"figure {self.name!r}: the name is not lower case letters, digits and underscores")

    def shown(self) -> str:
        """Return value and unit as the README quotes them.

        >>> Figure(name="rate", value=5612345.0, unit="bounds/s", bar="", passed=True).shown()
        '5,612,000 bounds/s'
        """
        return show_value(self.value, self.unit)


def show_value(value: float, unit: str) -> str:
    """Return a value with four significant digits, thousands apart, and its unit; counts `of` others are exact.

    >>> show_value(0.23456, "s"), show_value(60.0, ""), show_value(13628, "of 13,628 mutants")
    ('0.2346 s', '60', '13,628 of 13,628 mutants')
    """
    rounded = value if unit.startswith("of ") else float(f"{value:.4g}")
    text = f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.10g}"
    return f"{text} {unit}".strip()


def stored() -> dict[str, dict[str, object]]:
    """Return every stored figure by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))}
