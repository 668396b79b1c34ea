"""Spans of a system's timeline: what each lane of each rank does, and when."""

from typing import NamedTuple

LANES = ("compute", "tp", "cp", "ep", "dp", "pp", "host", "copy")


class Span(NamedTuple):
    """One stretch of work on one lane of one rank."""

    rank: int
    """Rank, device, worker or client."""
    lane: str
    """One of LANES."""
    start_s: float
    """Start."""
    stop_s: float
    """End."""
    name: str
    """What runs, `F3` for the forward pass of micro-batch 3."""
