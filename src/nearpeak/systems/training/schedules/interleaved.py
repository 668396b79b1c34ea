"""Interleaved 1F1B: each rank holds several chunks of the model and cycles through them."""

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.errors import SpecError
from nearpeak.systems.training.schedules import Ops, Schedule
from nearpeak.systems.training.schedules.one_f_one_b import one_f_one_b


def interleaved(rank_count: int, micro_batch_count: int, chunk_count: int) -> Ops:
    """Return the ops of each rank; stage c·p + r lies on rank r. One chunk per rank is 1F1B.

    Micro-batches go through a rank's chunks in groups of at least p; rank r runs 2 (p - 1 - r) + (v - 1) · group
    forward passes before it alternates.

    Raises:
        SpecError: the micro-batches do not divide into equal groups of at least p.

    >>> [str(op) for op in interleaved(2, 2, 2)[1]]
    ['1F0', '1F1', '3F0', '3B0', '3F1', '3B1', '1B0', '1B1']
    """
    if chunk_count == 1:
        return one_f_one_b(rank_count, micro_batch_count)
    round_count = max(1, micro_batch_count // rank_count)
    if micro_batch_count % round_count:
        near = micro_batch_count // rank_count * rank_count
        raise SpecError(
            f"schedule interleaved: {micro_batch_count} micro-batches on {rank_count} ranks do not divide into equal "
            f"groups of at least {rank_count}; a global batch of {near} or {near + rank_count} of them a replica would"
        )
    group = micro_batch_count // round_count
    return tuple(_rank_ops(rank, rank_count, group, round_count, chunk_count) for rank in range(rank_count))


def _rank_ops(rank: int, rank_count: int, group: int, round_count: int, chunk_count: int) -> tuple[PipelineOp, ...]:
    order = [(chunk, turn * group + place)
             for turn in range(round_count) for chunk in range(chunk_count) for place in range(group)]  # fmt: skip
    forward = [PipelineOp("F", chunk * rank_count + rank, batch) for chunk, batch in order]
    backward = [PipelineOp("B", (chunk_count - 1 - chunk) * rank_count + rank, batch) for chunk, batch in order]
    warm_up = min(len(order), 2 * (rank_count - 1 - rank) + (chunk_count - 1) * group)
    ops = forward[:warm_up]
    for place in range(len(order) - warm_up):
        ops += [forward[warm_up + place], backward[place]]
    return tuple(ops + backward[len(order) - warm_up :])


SCHEDULE = Schedule(
    title="interleaved 1F1B", ops=interleaved, chunk_count=None,
    source="Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2",
)  # fmt: skip
