"""What users add to a file of another tool: the facts that its format has no place for."""

import hashlib
from dataclasses import dataclass

from nearpeak.core.history import Device, Pairs, Revision, RunRecord, SampleSet, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Facts that stand beside a file."""

    device: str = ""
    """Device that it was measured on; empty where the file says so."""
    revision: str = ""
    """Commit that it was measured at; empty where the file says so."""
    repository: str = ""
    """Where the commit is to be found."""
    branch: str = ""
    """Branch; empty where the file says so, or for `main`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an importer reads of one run."""

    device: Device
    """Where it ran."""
    samples: tuple[SampleSet, ...]
    """What was measured."""
    revision: Revision | None = None
    """Which commit, as far as the file says."""
    branch: str = ""
    """Which branch, as far as the file says."""
    stack: Pairs = ()
    """Software that took part."""
    started_ns: int = 0
    """When; 0 where the file does not say."""
    lost: tuple[str, ...] = ()
    """Fields that the store has no place for."""
    selector: str = ""
    """Which part of the file it is."""


def record_of(found: Found, given: Given, data: bytes, importer: str, version: int, name: str) -> RunRecord:
    """Return the run as it goes into a store; what users give stands above what the file says."""
    device = Device(name=given.device) if given.device else found.device
    revision = found.revision
    if given.revision:
        revision = Revision(sha=given.revision, repository=given.repository)
    source = Source(
        digest=hashlib.sha256(data).hexdigest(), importer=importer, version=version, selector=found.selector,
        name=name, lost=found.lost,
    )  # fmt: skip
    return RunRecord(
        device=device, samples=found.samples, source=source, revision=revision,
        branch=given.branch or found.branch or "main", stack=found.stack, started_ns=found.started_ns,
        trigger="import",
    )  # fmt: skip
