"""Time that a rank loses to its collectives over replicas, which run on under the passes of its other model chunks."""

from collections.abc import Sequence
from typing import NamedTuple


class ReplicaTraffic(NamedTuple):
    """Collectives over replicas beside the passes of one model chunk in a step."""

    start_s: float
    """Start of the chunk's first forward pass."""
    stop_s: float
    """End of its last backward pass."""
    gather_s: float = 0.0
    """Gathers of its updated parameters, one after the other."""
    gather_wait_s: float = 0.0
    """What these add to its first forward pass where nothing before it hides them."""
    reduction_s: float = 0.0
    """Reductions of its gradients, one after the other."""
    reduction_tail_s: float = 0.0
    """Part of these that its last backward pass leaves."""
    slowing_s: float = 0.0
    """What the part within that pass slows it down."""
    slowing_ratio: float = 0.0
    """Time that passes lose for each second of a collective beside them."""


def replica_loss_s(chunks: Sequence[ReplicaTraffic], stop_s: float) -> float:
    """Return what collectives over replicas add to the time of a rank.

    One collective runs at a time. Parameters of a chunk are asked for when the first pass of the chunk before it
    starts; what its last backward pass leaves of its reductions runs under the backward passes of the others.

    Source: NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/schedules.py, param_sync_func and grad_sync_func.

    Args:
        stop_s: end of the last pass of the rank.

    >>> alone = ReplicaTraffic(0.0, 9.0, reduction_s=3.0, reduction_tail_s=2.0, slowing_s=0.5)
    >>> replica_loss_s([alone], 9.0), replica_loss_s([alone], 10.0), replica_loss_s([alone], 12.0)
    (2.5, 1.5, 0.5)
    """
    wait_s = lane_s = asked_s = hidden_s = 0.0
    for place, chunk in enumerate(sorted(chunks)):
        begin_s = max(lane_s, asked_s)
        lane_s = begin_s + chunk.gather_s
        lead_s = max(chunk.start_s + wait_s - begin_s, 0.0)
        if place:
            hidden_s += chunk.slowing_ratio * min(lead_s, chunk.gather_s)
        wait_s += max(chunk.gather_wait_s - lead_s, 0.0)
        asked_s = chunk.start_s + wait_s
    lane_s = 0.0
    for chunk in sorted(chunks, key=lambda chunk: chunk.stop_s):
        lane_s = max(lane_s + chunk.reduction_s, chunk.stop_s + chunk.reduction_tail_s)
        left_s = max(lane_s - stop_s, 0.0)
        hidden_s += chunk.slowing_ratio * max(chunk.reduction_tail_s - left_s, 0.0)
    return wait_s + hidden_s + sum(chunk.slowing_s for chunk in chunks) + max(lane_s - stop_s, 0.0)
