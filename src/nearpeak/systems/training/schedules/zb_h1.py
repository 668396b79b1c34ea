"""ZB-H1: 1F1B whose gradients of weights fill the cool-down, within the memory of 1F1B."""

from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.systems.training.schedules import Ops, Schedule


def zb_h1(rank_count: int, micro_batch_count: int, _chunk_count: int = 1) -> Ops:
    """Return the ops of each rank; rank r delays gradients of weights by r micro-batches, so that it holds at most p.

    >>> [str(op) for op in zb_h1(2, 3)[1]]
    ['1F0', '1I0', '1F1', '1I1', '1W0', '1F2', '1I2', '1W1', '1W2']
    """
    return tuple(
        split_backward_ops(rank, min(micro_batch_count, rank_count - rank), rank, micro_batch_count)
        for rank in range(rank_count)
    )


def split_backward_ops(rank: int, warm_up: int, delay: int, micro_batch_count: int) -> tuple[PipelineOp, ...]:
    """Return the ops of a rank that runs `warm_up` forward passes before its first backward pass.

    Each gradient of inputs lets one forward pass in. Gradients of weights follow `delay` micro-batches later; when no
    forward pass is left, one fills the wait for each gradient of inputs.
    """
    ops = [PipelineOp("F", rank, batch) for batch in range(warm_up)]
    weight = 0
    for batch in range(micro_batch_count):
        ops.append(PipelineOp("I", rank, batch))
        is_cool_down = warm_up + batch >= micro_batch_count
        if batch - weight >= delay or (is_cool_down and weight <= batch):
            ops.append(PipelineOp("W", rank, weight))
            weight += 1
        if not is_cool_down:
            ops.append(PipelineOp("F", rank, warm_up + batch))
    ops += [PipelineOp("W", rank, batch) for batch in range(weight, micro_batch_count)]
    return tuple(ops)


SCHEDULE = Schedule(
    title="ZB-H1", ops=zb_h1, splits_backward=True, source="Qi et al. 2023, arXiv:2401.10241, section 2.1 and figure 2"
)
