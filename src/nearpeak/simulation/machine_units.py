"""Shared units of a multiprocessor, and the picosecond, the simulator's unit of time."""

PIPES = ("tensor", "vector", "special", "shared")
"""Units of one multiprocessor that its resident blocks share; work on them is stated in seconds of the whole unit."""
PS_PER_S = 1_000_000_000_000
