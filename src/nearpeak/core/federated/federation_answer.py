"""Answers about a federation: round times, stragglers, energy, bytes and fairness of policies, and fleet changes."""

from dataclasses import dataclass
from typing import Any

from nearpeak.core.records.record_codec import Codec

_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerShare:
    """Rounds that one group ended for one reason."""

    group: str
    """Group of the last client."""
    cause: str
    """What it has more of than the median client of its round: compute, link or data."""
    share_ratio: float
    """Share of the rounds that had a straggler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """A group's part in the rounds of a policy."""

    name: str
    """Group."""
    target: str
    """Board in its mode."""
    client_count: int
    """Clients."""
    down_s: float
    """Expected time of receiving the model."""
    compute_s: float
    """Expected time of training in a round."""
    up_s: float
    """Expected time of sending the model."""
    asked_count: int
    """Times that its clients were asked."""
    counted_count: int
    """Updates that counted."""
    client_j: float | None
    """Energy of one of its clients over all rounds, on average; none where power is unknown."""
    source: str
    """Origin of time and power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """Accuracy of a small model that was trained for real along the clock."""

    accuracy_ratio: tuple[float, ...]
    """Accuracy on held-out samples after each round."""
    goal_ratio: float
    """Accuracy that is wanted."""
    goal_round_count: int | None
    """Rounds until then; none where it is not reached."""
    goal_s: float | None
    """Simulated time until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """Rounds under one policy, the mean over seeds where not stated otherwise."""

    policy: str
    """Policy in words."""
    server: str
    """Server in words."""
    round_mean_s: float
    """Mean time of a round."""
    low_s: float
    """Least mean time with all boards at one end of their intervals; a deadline can make it that of slow boards."""
    high_s: float
    """Greatest one."""
    quantiles_s: tuple[float, float, float, float]
    """Median, 90th and 99th percentile and longest round."""
    total_s: float
    """Time of all rounds."""
    round_j: float | None
    """Energy of a round's participants; none where a power is unknown."""
    round_bytes: int
    """Bytes of a round in both directions."""
    updates_count: float
    """Updates of a round that counted."""
    late_count: int
    """Updates after the deadline, first seed."""
    lost_count: int
    """Updates of clients that left, first seed."""
    jain_ratio: float
    """Jain's fairness index of the counted updates of clients."""
    staleness_count: float
    """Mean versions by which an update is behind."""
    estimate_ratio: float
    """Share of the time that loss estimates of per-client models take."""
    stragglers: tuple[StragglerShare, ...]
    """Causes of the rounds' length, most frequent first; first seed."""
    groups: tuple[GroupOutcome, ...]
    """Groups in the order of the fleet; first seed."""
    paired_ratio: tuple[float, float, float]
    """Total time over that of the first policy with the same seeds: mean, least and greatest."""
    curve: LearningCurve | None = None
    """Accuracy, where a model was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """A change of the fleet, and rounds of the first policy with it."""

    words: str
    """Change in words."""
    round_mean_s: float
    """Mean time of a round."""
    round_j: float | None
    """Energy of a round."""
    added_j: float | None
    """Energy of a round beyond that of the fleet as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFederation:
    """Everything `nearpeak plan federated` answers."""

    fleet: str
    """Name of the fleet."""
    model: str
    """Model."""
    model_bytes: int
    """Bytes of the model in one direction."""
    client_count: int
    """Clients of the fleet."""
    asked_count: int
    """Clients of a round, at most."""
    round_count: int
    """Rounds."""
    epoch_count: int
    """Passes over its data that a client makes in a round."""
    outcomes: tuple[PolicyOutcome, ...]
    """The policy asked for, then those to compare with."""
    changes: tuple[FleetChange, ...]
    """Changes of the fleet, shortest rounds first; empty where none were asked for."""
    cheapest: str
    """Change with the least added energy among those that shorten the round by 5 % or more; empty for none."""
    seeds: tuple[int, ...]
    """Seeds of all draws, the same for each policy."""
    notes: tuple[str, ...]
    """Assumptions, a sentence each."""

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record
