"""Conversion of other tools' timestamps to nanoseconds since 1970, and of their time units to seconds."""

from datetime import UTC, datetime

from nearpeak.errors import SpecError
from nearpeak.store.json_tree import Tree

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds per unit, as the files spell it."""


def epoch_ns(value: Tree) -> int:
    """Return an ISO 8601 time as nanoseconds since 1970 UTC; without a zone it is taken as UTC.

    >>> epoch_ns(Tree("1970-01-01T00:00:01+00:00", "x"))
    1000000000
    """
    try:
        moment = datetime.fromisoformat(value.text())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise SpecError(f"{value.where}: {str(value.raw)[:40]!r} is no ISO 8601 time") from None
    return max(0, round(seconds * 1e6) * 1000)


def seconds_per(unit: Tree) -> float:
    """Return the seconds of one `unit`."""
    if unit.text() not in SECONDS:
        raise SpecError(f"{unit.where}: {unit.text()[:40]!r} is no unit of time; there are {', '.join(SECONDS)}")
    return SECONDS[unit.text()]
