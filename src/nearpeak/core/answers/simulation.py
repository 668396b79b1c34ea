"""Result of a simulation: per kernel its waiting, start and end times and the placement of its thread blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOLDS = {
    "host": "the host had not submitted it",
    "queue": "a stream of the same hardware queue stood before it",
    "turn": "another context had the turn",
    "evicted": "its blocks were saved while another context had the turn",
    "rank": "work before it had blocks left to place",
    "grids": "as many kernels as the device holds were resident",
    "blocks": "every block slot was taken",
    "threads": "no multiprocessor had enough threads left",
    "registers": "no multiprocessor had enough registers left",
    "shared": "no multiprocessor had enough shared memory left",
    "cluster": "no cluster of multiprocessors had room for a cluster of blocks",
    "engine": "its copy engine was busy",
}
"""Reasons for which ready work did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A change of the context that has some multiprocessors."""

    start_ps: int
    """When the one was stopped."""
    end_ps: int
    """When the other went on."""
    leaving: str
    """Context that gave way."""
    entering: str
    """Context whose turn it is."""
    saved_bytes: int
    """Registers and shared memory of the one, written to memory."""
    restored_bytes: int
    """Those of the other, read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One kernel or copy."""

    name: str
    """Name in the work."""
    queue: str
    """Stream."""
    ready_ps: int
    """When everything it waits for had ended."""
    start_ps: int
    """When its first block started."""
    placed_ps: int
    """When its last block had started."""
    end_ps: int
    """When it was complete."""
    pool_bytes: Mapping[str, float]
    """Bytes it moved, by pool."""
    slot_ps: int
    """Time that its blocks were resident, all added up."""
    held_ps: Mapping[str, int] = field(default_factory=dict)
    """Time before its first block that each of `HOLDS` cost it; `evicted` counts what came later, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Blocks of one kernel that started together and ended together on equal multiprocessors."""

    name: str
    """Kernel."""
    start_ps: int
    """When they started."""
    end_ps: int
    """When they ended."""
    sms: int
    """Bit mask of their multiprocessors."""
    each_count: int
    """Blocks on each of them."""
    repeat_count: int = 1
    """Times in a row that the same happened and was not simulated anew."""
    period_ps: int = 0
    """Time from one of them to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole simulation."""

    end_ps: int
    """When the last piece of work was complete."""
    spans: tuple[Span, ...]
    """Every kernel and copy, in the order given."""
    batches: tuple[Batch, ...]
    """Placement of blocks; empty unless requested."""
    event_count: int
    """States that the simulation went through."""
    cta_count: int
    """Thread blocks that ran."""
    energy_j: float | None = None
    """Energy of the whole run; none where the machine says nothing of its power."""
    governed: tuple[tuple[int, float, float], ...] = ()
    """Decisions of the governor: end of the time in picoseconds, mean watts, clock of the highest."""
    heat_celsius: tuple[float, ...] = ()
    """Temperature at each of them."""
    switches: tuple[Switch, ...] = ()
    """Changes between contexts that took time or moved state."""

    def span(self, name: str) -> Span:
        """Return the span of one kernel or copy."""
        return next(span for span in self.spans if span.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Times of a stream's jobs from arrival to end."""

    name: str
    """Stream."""
    job_s: tuple[float, ...]
    """Each job."""
    median_s: float
    """Half of them were done by then."""
    p99_s: float
    """All but one in a hundred."""
    missed_count: int
    """Jobs past their deadline."""
    alone_s: float
    """The same job with the device to itself."""
    reasons: tuple[str, ...] = ()
    """Causes of waiting, the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two streams and the time in which both had work running."""

    first: str
    """One stream."""
    second: str
    """The other."""
    both_s: float
    """Time in which both ran."""
    most_s: float
    """Most that it could be: the time in which the less busy of them ran."""
    reason: str = ""
    """Cause of missing overlap; empty where they overlapped for nine tenths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Streams under one policy."""

    policy: str
    """Sharing policy: one of `share_policies.POLICIES`."""
    end_s: float
    """When all was done."""
    streams: tuple[Latency, ...]
    """In the order given."""
    overlaps: tuple[Overlap, ...] = ()
    """Concurrent time of each pair of streams."""
    energy_j: float | None = None
    """Energy of all of it; none where the machine says nothing of its power."""
    run: Run | None = None
    """The whole run, if requested."""
