"""Batch priority: by reason of the job, raised by waiting time, with fair shares per owner."""

from collections.abc import Mapping, Sequence

from nearpeak.errors import SpecError
from nearpeak.farm.jobs import WaitingBatch

REASONS: Mapping[str, int] = {
    "round": 1, "gate": 2, "suspect": 3, "bisect": 4, "pr": 5, "nightly": 6, "manual": 6, "calibration": 7, "sweep": 7,
}  # fmt: skip
"""Priority by reason of a job: someone waits for a gate; an A/A pair or a sweep fills idle time."""
STEP_S = 3600.0
"""Waiting time that raises a batch by one priority."""
NOISY = range(2, 6)
"""Priorities that a noisy device does not serve, as they compare small differences."""


def priority_of(reason: str) -> int:
    """Return the priority of a job's reason.

    >>> priority_of("gate")
    2
    """
    if reason not in REASONS:
        raise SpecError(f"--reason {reason!r}: is not known; there are {', '.join(REASONS)}")
    return REASONS[reason]


def rank(batch: WaitingBatch) -> float:
    """Return how urgent a batch is, least first: its priority, less one for each hour that it has waited.

    The rest of a comparison whose rounds have begun comes before all that begins anew: a comparison on a device that
    has warmed up to something else is worth less.
    """
    first = REASONS["round"] if batch.started or (batch.begun and batch.comparison) else batch.priority
    return min(first, batch.priority) - batch.waited_s / STEP_S


def ordered(waiting: Sequence[WaitingBatch], used_s: Mapping[str, float]) -> list[WaitingBatch]:
    """Return waiting batches, the most urgent first; between equals goes the owner who has used least.

    Args:
        used_s: device time of each owner in the last day.

    >>> ordered([], {})
    []
    """
    taken = dict(used_s)
    order: list[WaitingBatch] = []
    levels: dict[int, list[WaitingBatch]] = {}
    for batch in sorted(waiting, key=lambda b: (rank(b), b.round, b.id)):
        levels.setdefault(int(rank(batch) // 1), []).append(batch)
    for level in sorted(levels):
        order += _shared(levels[level], taken)
    return order


def _shared(batches: Sequence[WaitingBatch], taken: dict[str, float]) -> list[WaitingBatch]:
    """Return batches of one level so that each next one belongs to whoever has used least by then."""
    queues: dict[str, list[WaitingBatch]] = {}
    for batch in batches:
        queues.setdefault(batch.owner, []).append(batch)
    order = []
    while queues:
        owner = min(queues, key=lambda name: (taken.get(name, 0.0), name))
        batch = queues[owner].pop(0)
        taken[owner] = taken.get(owner, 0.0) + max(batch.cost_s, 1e-3)
        order.append(batch)
        if not queues[owner]:
            del queues[owner]
    return order
