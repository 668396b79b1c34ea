"""Values of the farm: jobs, batches that one lease serves, leases, devices."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.stored_run import TRIGGERS
from nearpeak.errors import SpecError
from nearpeak.store.migrations.versions.v0005_farm import POOLS, SERVICES, STATES

__all__ = [
    "FINAL",
    "POOLS",
    "SERVICES",
    "STATES",
    "BatchRequest",
    "Device",
    "JobRequest",
    "Lease",
    "LeasedJob",
    "WaitingBatch",
]
Json = Mapping[str, Any]
FINAL = ("done", "failed", "rejected", "cancelled")
"""States that a job does not leave."""
_HEX = 32


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One thing to run; two requests with the same kind, payload and key are the same job."""

    kind: str
    """Name of a file of `farm/kinds`."""
    payload: Json
    """What to run, as JSON; never a pickle."""
    key: str = ""
    """Tells apart what is to run again: a campaign, a night, a launch."""
    subject: str = ""
    """What past durations are looked up by; the payload's digest where it is empty."""

    @cached_property
    def uid(self) -> str:
        """Identity: a job that is submitted twice runs once."""
        return digest([self.kind, self.payload, self.key])[:_HEX]

    @cached_property
    def what(self) -> str:
        """Subject of the job, or a substitute."""
        return self.subject or digest([self.kind, self.payload])[:_HEX]


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """Jobs that run one after the other under one lease, and whose results are published together or not at all."""

    jobs: tuple[JobRequest, ...]
    """In the order in which they run: one job, a round A B B A, or many small ones."""
    pool: str
    """`device`: a device for itself; `slot`: a slot of some host's cores."""
    device: str = ""
    """Name of the device that is wanted; empty for any."""
    model: str = ""
    """Model of the device that is wanted; empty for any."""
    comparison: str = ""
    """Whose rounds all run on one device; empty for none."""
    round: int = 0
    """Round of the comparison, from 0; rounds run in order."""
    priority: int = 6
    """1 is first, 7 last; see `schedule.REASONS`."""
    owner: str = ""
    """Owner, among whom device time is shared."""
    trigger: str = "manual"
    """Why: `nightly`, `pr`, `manual`, …; budgets are per trigger."""

    def __post_init__(self) -> None:
        """Refuse a batch without jobs, of no pool, or with a priority or trigger that does not exist."""
        if not self.jobs:
            raise SpecError("batch: holds no jobs; give at least one")
        if self.pool not in POOLS:
            raise SpecError(f"batch: pool {self.pool!r} is not known; there are {', '.join(POOLS)}")
        if not 1 <= self.priority <= 7:
            raise SpecError(f"batch: priority {self.priority} is not one of 1 to 7")
        if self.trigger not in TRIGGERS:
            raise SpecError(f"batch: trigger {self.trigger!r} is not known; there are {', '.join(TRIGGERS)}")

    @cached_property
    def uid(self) -> str:
        """Identity, which follows from the jobs'."""
        return digest([job.uid for job in self.jobs])[:_HEX]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What can be leased."""

    name: str
    """Unique in the farm: the UUID of a GPU or slice, `cpu@HOST`, or `HOST/N` for a slot of its cores."""
    pool: str = "device"
    """`device` or `slot`."""
    host: str = ""
    """Machine it sits in."""
    model: str = ""
    """What it is: `NVIDIA H200`."""
    parent: str = ""
    """Board of which it is a slice; empty for a whole one."""

    def __post_init__(self) -> None:
        """Refuse a device without a name, or of no pool."""
        if not self.name or len(self.name) > 200 or not self.name.isprintable():
            raise SpecError(f"device {self.name[:40]!r}: must have a printable name of at most 200 characters")
        if self.pool not in POOLS:
            raise SpecError(f"device {self.name}: pool {self.pool!r} is not known; there are {', '.join(POOLS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedJob:
    """A job of a batch that is held."""

    id: int
    """Identity within the store."""
    uid: str
    """Identity of the job."""
    kind: str
    """Name of a file of `farm/kinds`."""
    text: str
    """The payload, as JSON text."""

    @property
    def payload(self) -> Json:
        """What to run."""
        payload: Json = json.loads(self.text)
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run one batch on one device until it expires; only who holds the newest token may publish."""

    device: Device
    """What is held."""
    batch: int
    """Identity of the batch within the store."""
    uid: str
    """Identity of the batch."""
    attempt: int
    """Identity of the attempt within the store."""
    holder: str
    """Who holds it: host, process and a random word."""
    fencing_token: int
    """Fencing token, greater than all earlier ones of the device."""
    ttl_s: float
    """How long it lives unless it is renewed."""
    began_s: float
    """Time of the request on the holder's steady clock; the lease lives at least its life from then on."""
    jobs: tuple[LeasedJob, ...]
    """The jobs, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one job of a batch ended."""

    text: str
    """What it gave, as JSON text."""
    time_s: float
    """How long it took."""
    failed: bool = False
    """Whether the program failed: that is a result too, and is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingBatch:
    """A batch that waits to be run."""

    id: int
    """Identity within the store."""
    uid: str
    """Identity of the batch."""
    pool: str
    """What it is leased."""
    device: str
    """Device that it must run on; empty for any."""
    model: str
    """Model that it must run on; empty for any."""
    comparison: str
    """Comparison that it is a round of; empty for none."""
    round: int
    """Round."""
    priority: int
    """As requested."""
    owner: str
    """Owner."""
    cost_s: float
    """How long it is expected to take."""
    waited_s: float
    """How long it has been waiting."""
    attempt_count: int
    """How often it was begun."""
    begun: bool
    """Whether it was begun before and lost: the rest of a round goes first."""
    started: bool = field(default=False)
    """Whether an earlier round of its comparison is on a device already."""
    dead: frozenset[str] = frozenset()
    """Devices on which it was tried and that did not answer."""


def text_of(value: object) -> str:
    """Return JSON as the store keeps it.

    Raises:
        SpecError: it holds what JSON has no word for, e.g. NaN.
    """
    try:
        return canonical_json(value)
    except (ValueError, TypeError) as error:
        raise SpecError(f"job: the payload is no JSON: {error}") from None
