"""1F1B: after a warm-up, each rank alternates one forward and one backward pass."""

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.systems.training.schedules import Ops, Schedule


def one_f_one_b(rank_count: int, micro_batch_count: int, _chunk_count: int = 1) -> Ops:
    """Return the ops of each rank; rank r runs min(m, p - 1 - r) forward passes before it alternates.

    >>> [str(op) for op in one_f_one_b(2, 3)[0]]
    ['0F0', '0F1', '0B0', '0F2', '0B1', '0B2']
    """
    ranks = []
    for rank in range(rank_count):
        warm_up = min(micro_batch_count, rank_count - 1 - rank)
        ops = [PipelineOp("F", rank, batch) for batch in range(warm_up)]
        for batch in range(micro_batch_count - warm_up):
            ops += [PipelineOp("F", rank, warm_up + batch), PipelineOp("B", rank, batch)]
        ops += [PipelineOp("B", rank, batch) for batch in range(micro_batch_count - warm_up, micro_batch_count)]
        ranks.append(tuple(ops))
    return tuple(ranks)


SCHEDULE = Schedule(
    title="1F1B", ops=one_f_one_b,
    source="Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1 (PipeDream-Flush)",
)  # fmt: skip
