"""Provisioning: the bandwidth, compute rate and capacity that a device needs to meet a time limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.answers.bound import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One resource: with less of it no device can reach the time."""

    resource: str
    """Its name, e.g. `DRAM bandwidth` or `products of bf16`."""
    unit: str
    """Its unit: B/s, FLOP/s, OP/s, Hz or B."""
    least: float
    """Least amount, in that unit."""
    status: str
    """`proved` or `model`, as the term it follows from."""
    expression: str
    """Formula over the figures of the work."""
    here: float | None = None
    """Amount of the base target; none without one, or where no document states it."""

    @property
    def factor_ratio(self) -> float | None:
        """Least over what the base target has: above 1 it falls short; none where that is not known."""
        return self.least / self.here if self.here else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """A storage on chip, and the memory bandwidth that it asks for."""

    storage_bytes: int
    """All storage on chip: last cache, registers, shared and tensor memory."""
    dram_bytes: int
    """Bytes that must cross the memory's pins with that much storage."""
    dram_bytes_per_s: float
    """Bandwidth that moves them in the given time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """Least resources of a device for some work within a time."""

    subject: str
    """The case in one line, or the name of the workload."""
    within_s: float
    """The time."""
    target: str | None
    """Base target; none when the question is free of any device."""
    bound_s: float | None
    """Bound on the base target; the time is out of its reach when this is more."""
    limiter: str | None
    """Term that sets that bound."""
    needs: tuple[Need, ...]
    """All resources, the one that falls shortest first."""
    frontier: tuple[FrontierPoint, ...]
    """Storage against bandwidth, as far as more storage saves traffic."""
    least_storage_bytes: int | None
    """Least storage with which the base target's bandwidth could suffice; none when none could, or without a base."""
    policy: Policy
    """Freedoms that the program has."""
    assumptions: tuple[str, ...]
    """Identifiers of what the proved needs rest on."""
    uncovered: Mapping[str, int] = field(default_factory=dict)
    """Calls without a rule, by name: with any, more may be needed."""

    @property
    def reached(self) -> bool | None:
        """Whether the base target's bound is within the time; none without a base."""
        return None if self.bound_s is None else self.bound_s <= self.within_s
