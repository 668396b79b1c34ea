"""Registry of executors, which place executions on hosts; the store alone decides which result counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nearpeak.farm.jobs import Device

__all__ = ["Change", "Executor"]
Errand = Mapping[str, Any]
"""JSON argument of an execution: batch, usable devices, life of the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An execution that ended."""

    handle: str
    """Handle of the execution."""
    status: str
    """How it says that it ended: `published`, `rejected`, `infra`, `busy`, …; `lost` where it did not come back."""
    note: str = ""
    """Why it did not come back."""


class Executor(Protocol):
    """An engine. Its answers are hints: what counts is what the store says."""

    name: str
    """Stem of its file."""

    def devices(self) -> tuple[Device, ...]:
        """Return the devices and slots that its hosts have now."""

    def submit(self, errand: Errand) -> str:
        """Begin an execution and return its handle; the same errand again gives the same handle and runs once."""

    def poll(self, handles: Sequence[str], timeout_s: float) -> tuple[Change, ...]:
        """Return which of the executions ended; waits for the first one up to the timeout."""

    def cancel(self, handle: str) -> None:
        """Take an execution back if it has not begun; a best effort."""

    def close(self) -> None:
        """Begin nothing more and let go of all hosts."""
