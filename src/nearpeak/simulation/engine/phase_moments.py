"""Progress of simulated work within its phase in whole picoseconds, and records of completed work."""

from nearpeak.core.answers.simulation import Span
from nearpeak.simulation.engine.device_work import Copy
from nearpeak.simulation.engine.work_nodes import Flow, Running

NEAR_PS = 1e-3
"""What rounding may leave of a phase that has ended."""


def point_of(flow: Flow, now_ps: int) -> tuple[int, int, float, int, int]:
    """Return the progress of a flow at a moment."""
    return (flow.running.order, flow.phase, flow.left_ps, flow.count, now_ps - flow.start_ps)


def whole(time_ps: float) -> int:
    """Return the first whole picosecond at which that time has passed."""
    whole = int(time_ps)
    return max(whole if time_ps - whole <= NEAR_PS else whole + 1, 1)


def span_of(node: Running) -> Span:
    """Return the record of one piece of work."""
    totals = {}
    if isinstance(node.node, Copy):
        totals = dict(node.node.pool_bytes)
    else:
        for phase in node.node.phases:
            for pool, amount in phase.pool_bytes.items():
                totals[pool] = totals.get(pool, 0.0) + amount * node.node.cta_count
    return Span(
        name=node.node.name, queue=node.node.queue, ready_ps=node.ready_ps, start_ps=node.start_ps,
        placed_ps=node.placed_ps, end_ps=node.end_ps, pool_bytes=totals, slot_ps=node.slot_ps,
        held_ps=dict(node.held_ps),
    )  # fmt: skip
