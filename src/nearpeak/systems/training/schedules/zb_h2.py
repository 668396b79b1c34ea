"""ZB-H2: zero-bubble pipeline with twice the activations of 1F1B; ranks start and end a step shifted."""

from nearpeak.systems.training.schedules import Ops, Schedule
from nearpeak.systems.training.schedules.zb_h1 import split_backward_ops


def zb_h2(rank_count: int, micro_batch_count: int, _chunk_count: int = 1) -> Ops:
    """Return the ops of each rank; rank r runs 2 (p - r) - 1 forward passes first and delays weights by 2 r.

    >>> [str(op) for op in zb_h2(2, 4)[0]]
    ['0F0', '0F1', '0F2', '0I0', '0W0', '0F3', '0I1', '0W1', '0I2', '0W2', '0I3', '0W3']
    """
    return tuple(
        split_backward_ops(rank, min(micro_batch_count, 2 * (rank_count - rank) - 1), 2 * rank, micro_batch_count)
        for rank in range(rank_count)
    )


SCHEDULE = Schedule(
    title="ZB-H2", ops=zb_h2, splits_backward=True, source="Qi et al. 2023, arXiv:2401.10241, section 2.2 and figure 3"
)
