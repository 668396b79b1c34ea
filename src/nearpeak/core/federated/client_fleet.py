"""A fleet of federated clients: groups of equal boards with their data, links, presence and stated figures."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nearpeak.errors import SpecError

MOST_CLIENTS = 100_000
"""Clients of a fleet; the columns of more would not fit into memory round by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    """Equal clients of a fleet."""

    name: str
    """Name, by which random draws of its clients are made: it stays when board or mode change."""
    board: str
    """Target of the board."""
    mode: str
    """Power mode of the board; empty for the target as it is."""
    client_count: int
    """Clients."""
    sample_count: int
    """Training samples of each client."""
    down_bytes_per_s: float
    """Rate at which a client receives."""
    up_bytes_per_s: float
    """Rate at which a client sends."""
    concentration_ratio: float | None = None
    """Dirichlet parameter of the shares of labels: small means few labels per client; none for equal shares."""
    label_ratio: tuple[float, ...] = ()
    """Stated shares of labels, which add up to 1; empty where they are drawn or equal."""
    presence_s: tuple[float, ...] = ()
    """Times present and absent in turn, repeated for ever; empty for always present."""
    on_mean_s: float | None = None
    """Mean of exponential times present; none for a trace or for always."""
    off_mean_s: float | None = None
    """Mean of exponential times absent."""
    idle_w: float | None = None
    """Stated power of a client that waits."""
    busy_w: float | None = None
    """Stated power of a client that trains; none to predict it."""
    sample_s: float | None = None
    """Stated time of one training sample; none to predict it."""
    spread_ratio: float = 0.0
    """Standard deviation of the compute time of rounds over its mean (log-normal)."""

    @property
    def target(self) -> str:
        """Name of the board in its mode.

        >>> group_of("jetson_orin_nano", mode="15W").target
        'jetson_orin_nano:15W'
        """
        return f"{self.board}:{self.mode}" if self.mode else self.board


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All clients of a federation, and what each does in a round."""

    groups: tuple[ClientGroup, ...]
    """Groups of equal clients."""
    epoch_count: int = 1
    """Passes over its own data that a client makes in a round."""
    batch_count: int = 16
    """Samples of a training step."""
    name: str = "fleet"
    """Name for people."""

    def __post_init__(self) -> None:
        """Refuse a fleet without data or with too many clients."""
        if not self.groups or not sum(group.client_count * group.sample_count for group in self.groups):
            raise SpecError(f"{self.name}: has no client with samples; add a [[client]] with samples")
        if self.client_count > MOST_CLIENTS:
            raise SpecError(f"{self.name}: has {self.client_count:,} clients; at most {MOST_CLIENTS:,} are simulated")

    @property
    def client_count(self) -> int:
        """Clients of all groups."""
        return sum(group.client_count for group in self.groups)

    def changed(self, name: str, change: Callable[[ClientGroup], ClientGroup]) -> "Fleet":
        """Return the fleet with one group changed.

        >>> fleet = Fleet(groups=(group_of("jetson_nano"),))
        >>> fleet.changed("jetson_nano", lambda group: replace(group, client_count=3)).client_count
        3
        """
        return replace(self, groups=tuple(change(group) if group.name == name else group for group in self.groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCost:
    """Time and power of a group's clients while they train, from a prediction or as stated."""

    sample_s: float
    """Time of one training sample."""
    low_s: float
    """Low end of its 90 % interval; the same where it is stated."""
    high_s: float
    """High end."""
    busy_w: float | None
    """Power while training; none where it is unknown."""
    idle_w: float | None
    """Power while waiting; none where it is unknown."""
    source: str
    """Origin of the figures."""


def group_of(board: str, *, mode: str = "", sample_count: int = 100, rate_bytes_per_s: float = 12.5e6) -> ClientGroup:
    """Return a group of one client with equal links in both directions, for examples and added clients.

    >>> group_of("jetson_nano").client_count
    1
    """
    return ClientGroup(
        name=board, board=board, mode=mode, client_count=1, sample_count=sample_count,
        down_bytes_per_s=rate_bytes_per_s, up_bytes_per_s=rate_bytes_per_s,
    )  # fmt: skip
