"""DualPipeV: DualPipe folded in the middle: each rank holds two stages once, and micro-batches enter at one end."""

from nearpeak.errors import SpecError
from nearpeak.systems.training.schedules import Ops, Schedule
from nearpeak.systems.training.schedules.dualpipe import TwoWayOps, fill_two_way


def dualpipev(rank_count: int, micro_batch_count: int, _chunk_count: int = 2) -> Ops:
    """Return the ops of each rank; rank r holds stages r and 2 p - 1 - r.

    Raises:
        SpecError: fewer than 2 p micro-batches.
    """
    if micro_batch_count < 2 * rank_count:
        raise SpecError(
            f"schedule dualpipev: needs at least 2 p = {2 * rank_count} micro-batches, got {micro_batch_count}"
        )
    ranks = []
    for rank in range(rank_count):
        ops = TwoWayOps((rank, 2 * rank_count - 1 - rank), (0, 0))
        main_count = micro_batch_count - 2 * rank_count + rank + 1
        fill_two_way(ops, rank, rank_count, main_count, is_turn=rank == rank_count - 1)
        ranks.append(tuple(ops.ops))
    return tuple(ranks)


SCHEDULE = Schedule(
    title="DualPipeV", ops=dualpipev, chunk_count=2, splits_backward=True,
    source="Sea AI Lab 2025, 'Cut-in-half' schedule; order of ops: github.com/deepseek-ai/DualPipe",
)  # fmt: skip
