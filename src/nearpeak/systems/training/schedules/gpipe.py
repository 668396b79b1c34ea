"""GPipe: all forward passes, then all backward passes."""

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.systems.training.schedules import Ops, Schedule


def gpipe(rank_count: int, micro_batch_count: int, _chunk_count: int = 1) -> Ops:
    """Return the ops of each rank: every forward pass, then every backward pass, both in order of micro-batches.

    >>> [str(op) for op in gpipe(2, 2)[1]]
    ['1F0', '1F1', '1B0', '1B1']
    """
    return tuple(
        tuple(PipelineOp(kind, rank, batch) for kind in "FB" for batch in range(micro_batch_count))
        for rank in range(rank_count)
    )


SCHEDULE = Schedule(title="GPipe", ops=gpipe, source="Huang et al. 2019, arXiv:1811.06965, figure 2")
