"""Time that a second-order optimizer adds to a planned training step, from predicted kernels and collectives."""

from nearpeak.api.device_durations import kernel_durations
from nearpeak.api.training.training_time import transfer_durations
from nearpeak.core.systems.duration import WHOLE
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.second_order import SecondOrderStep, second_order_of
from nearpeak.core.systems.training_answer import TrainingAnswer
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape

_SLACK = ("bubble", "exposed pp", "exposed dp")
"""Parts of a step in which a rank's device waits."""


def second_order_time(
    shape: TransformerShape, plan: TrainingPlan, cluster: Cluster, step: TrainingAnswer, words: str
) -> SecondOrderStep:
    """Return what the optimizer that `words` state adds to a step of `plan`.

    Inverses hide in the pipeline's bubble and in exposed collectives, or run on a sub-grid of ranks beside the step.

    Args:
        step: the step without it.
        words: method, and how often and where it works: `kfac,factors=10,inverses=100,grid=4`.

    Raises:
        SpecError: the words are none.
        NotModelledError: a kernel of the method has no model (eigenvalues of Shampoo), or the model's layers have none.

    >>> from nearpeak.api.training.training_time import training_time
    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> from nearpeak.targets.clusters import cluster_of
    >>> cluster, shape = cluster_of("8xh100_sxm"), shape_of("llama-3-8b")
    >>> plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=16, sequence=2048)
    >>> step = training_time(shape, plan, cluster)
    >>> rare = second_order_time(shape, plan, cluster, step, "kfac,factors=10,inverses=1000")
    >>> rare.added_s < second_order_time(shape, plan, cluster, step, "kfac").added_s
    True
    """
    from nearpeak.systems.training.second_order.second_order_step import second_order_step
    from nearpeak.systems.training.second_order.weight_matrices import weight_matrices
    from nearpeak.targets import target_of

    kernels = kernel_durations(target_of(cluster.target))
    moves = transfer_durations(plan, cluster)
    return second_order_step(
        weight_matrices(shape, plan), second_order_of(words, plan.dp * plan.cp),
        case_s=lambda case: kernels(case, WHOLE).time_s, transfer_s=lambda transfer: moves(transfer).time_s,
        step_s=step.step_s, slack_s=sum(time_s for name, time_s in step.parts_s.items() if name in _SLACK),
    )  # fmt: skip
