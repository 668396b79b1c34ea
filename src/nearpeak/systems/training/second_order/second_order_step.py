"""Time that a second-order optimizer adds to a training step, with inverses beside it or on a sub-grid of ranks."""

from collections.abc import Callable, Sequence

from nearpeak.core.systems.rank_program import Transfer
from nearpeak.core.systems.second_order import SecondOrderPlan, SecondOrderStep
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.systems.training.second_order.matrix_methods import MatrixLayer, method_work
from nearpeak.systems.training.second_order.rank_placement import place_longest_first


def exposed_s(inverse_s: float, slack_s: float, interval_count: int) -> float:
    """Return the part of work done once in some steps that their slack does not hide: max(0, work - k slack).

    >>> exposed_s(1.0, 0.3, 2), exposed_s(1.0, 0.3, 4)
    (0.4, 0.0)
    """
    return max(0.0, inverse_s - interval_count * slack_s)


def second_order_step(
    layers: Sequence[MatrixLayer], plan: SecondOrderPlan, *, case_s: Callable[[Case], float],
    transfer_s: Callable[[Transfer], float], step_s: float, slack_s: float = 0.0,
) -> SecondOrderStep:  # fmt: skip
    """Return what a method adds to a step.

    On all ranks, inverses run in the slack of each rank's step. On a sub-grid they run beside the whole step, and the
    other ranks take over its micro-batches.

    Args:
        case_s: time of a kernel.
        transfer_s: time of a collective over the data-parallel ranks.
        step_s: time of a step without the method.
        slack_s: idle time of a rank within a step, such as a pipeline's bubble or exposed communication.
    """
    if step_s <= 0 or slack_s < 0:
        raise SpecError(f"second order: step {step_s:g} s must be above 0, slack {slack_s:g} s at least 0")
    works = [(method_work(plan.method, layer), layer.layer_count) for layer in layers]
    jobs = [job for work, count in works for job in work.inverses * count]
    grid = plan.sub_grid_count
    placed = place_longest_first([case_s(job.case) for job in jobs], grid or plan.rank_count)
    handed = sum(
        transfer_s(Transfer(kind="broadcast", bytes=job.result_bytes, dim="dp")) for job in jobs
    ) if plan.rank_count > 1 else 0.0  # fmt: skip
    reductions = [(work.reduction, count) for work, count in works if work.reduction and plan.rank_count > 1]
    slower_s = step_s * grid / (plan.rank_count - grid)
    hidden_by_s = step_s + slower_s if grid else slack_s
    every = plan.inverse_interval_count
    return SecondOrderStep(
        method=plan.method, factor_s=sum(case_s(case) * count for work, count in works for case in work.factors)
        / plan.factor_interval_count,
        reduce_s=sum(transfer_s(transfer) * count for transfer, count in reductions) / plan.factor_interval_count,
        inverse_s=placed.longest_s, broadcast_s=handed,
        exposed_s=exposed_s(placed.longest_s + handed, hidden_by_s, every) / every,
        update_s=sum(case_s(case) * count for work, count in works for case in work.updates),
        sub_grid_s=slower_s, job_ranks=placed.rank,
    )  # fmt: skip
