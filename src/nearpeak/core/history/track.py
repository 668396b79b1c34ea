"""A plotted series: one value per commit, its level changes, and changes of its environment."""

from dataclasses import dataclass

from nearpeak.core.history.bridge import Bridge
from nearpeak.core.history.stored_run import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackPoint:
    """A commit, or a run of none, in a series."""

    sha: str
    """Commit; empty where the run is of none."""
    position: int
    """First-parent position of the commit; −1 where it is not known."""
    order_key: int
    """Place in the history."""
    run_id: int
    """Newest run of it."""
    stack_id: int
    """Software stack of that run."""
    device_id: int
    """Unit that it ran on."""
    value: float
    """Median over launches, in the metric's unit."""
    values: tuple[float, ...]
    """Median of each launch, all runs of the commit together."""
    clocks_hz: tuple[float, ...] = ()
    """Mean clock of the device in each launch; empty where one is unknown."""
    run_ids: tuple[int, ...] = ()
    """Run of each launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackChange:
    """A change of the level of a series."""

    index: int
    """First point of the new level."""
    tier: str
    """`suspect` or `confirmed`."""
    worse: bool
    """Whether the new level is the worse one."""
    value_ratio: float
    """New level over old one."""
    low_ratio: float
    """Lower end of its interval."""
    high_ratio: float
    """Upper end."""
    probability_ratio: float
    """Chance that the level changes here."""
    good_sha: str
    """Last commit of the old level."""
    bad_sha: str
    """First commit of the new one."""
    safe_good_sha: str = ""
    """Commit that is surely of the old level (9 chances in 10): the first bad one is not known exactly."""
    safe_bad_sha: str = ""
    """Commit that is surely of the new one."""
    subject: str = ""
    """First line of that commit's message."""
    stack: tuple[tuple[str, str, str], ...] = ()
    """Components that differ: name, before, after."""
    devices: tuple[str, str] | None = None
    """Units before and after, where they differ."""
    clock_ratio: float | None = None
    """Clock after over clock before; none where unknown."""
    by_clock: bool = False
    """Whether it vanishes at equal clocks: caused by power or temperature, not by code."""
    over: bool = False
    """Whether the old level, or the old clock, is back."""
    span_count: int = 1
    """Commits among which the first bad one is: 1 where good and bad are neighbours in the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A series with its points and changes."""

    series: Series
    """Whose."""
    points: tuple[TrackPoint, ...]
    """In the order of history; runs without a value are left out."""
    failed_count: int = 0
    """Launches without a value."""
    changes: tuple[TrackChange, ...] = ()
    """In the order of history."""
    outcome: str = ""
    """State of the search for changes: `searched`, or the reason for none."""
    bridges: tuple[tuple[int, Bridge], ...] = ()
    """Changes of the key: first point under the new key, and what it did; values before are as under the newest key."""
    clock_share_ratio: float | None = None
    """Part of a change of the clock that shows in the values; none where no clock moved, or it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressed:
    """Changes of several series that began at the same commits."""

    good_sha: str
    """Last good commit."""
    bad_sha: str
    """First bad one."""
    subject: str
    """First line of its message."""
    changes: tuple[tuple[Series, TrackChange], ...]
    """Series with their changes, largest first; the first is the primary one."""
    suspects: tuple[tuple[str, str], ...]
    """Possible causes, likeliest first: axis and value."""
    alert_id: int = 0
    """Alert that it is followed by; 0 where it has none."""
    status: str = ""
    """State of the alert."""

    @property
    def by_clock(self) -> bool:
        """Say whether it is an episode of the clock: all of it is gone at equal clocks."""
        return all(change.by_clock for _, change in self.changes)

    @property
    def over(self) -> bool:
        """Say whether the old level is back in every series."""
        return all(change.over for _, change in self.changes)
