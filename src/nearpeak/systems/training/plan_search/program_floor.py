"""Lower bound of a plan's step by the model of its kernels: queues without gaps, in the shortest pipeline."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from nearpeak.core.systems.duration import WHOLE
from nearpeak.core.systems.rank_program import RankCall, RankProgram
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.plan_search.step_floor import fill_ratio
from nearpeak.systems.training.rank_lanes import Times

ProgramTime = Callable[[TransformerShape, TrainingPlan], tuple[float, float]]
"""Seconds of a micro-batch on one rank that holds the whole of a model: forward, and all passes together."""


def program_floor(shape: TransformerShape, program_time: ProgramTime) -> Callable[[TrainingPlan], float]:
    """Return a bound of single plans that lies close to the step, from the programs of a layer of each kind.

    Plans that differ in stages, replicas or schedule run the same kernels, so that few programs serve all plans. The
    stages' times are those of a queue that never waits; fill_ratio gives the shortest pipeline of such stages.

    Args:
        program_time: busy time of the kernels and queued collectives of one micro-batch; called with models of few
            layers on one stage.
    """
    known: dict[TrainingPlan, _ModelTime] = {}

    def floor(plan: TrainingPlan) -> float:
        key = replace(
            plan, pp=1, chunk_count=1, schedule="1f1b", global_batch=plan.dp * plan.micro_batch, dp_overlap=True
        )
        if key not in known:
            known[key] = _model_time(shape, key, program_time)
        model, batches = known[key], plan.micro_batch_count
        mean_s = batches * model.whole_s / plan.pp * fill_ratio(plan, model.forward_s / model.whole_s)
        longest_s = batches * -(-shape.layer_count // plan.pp) * model.layer_s  # some stage has that many layers
        return float(max(mean_s, longest_s))

    return floor


def busy_time(program: RankProgram, times: Times, *, has_tp: bool) -> tuple[float, float]:
    """Return the seconds of the kernels and queued collectives of one micro-batch: forward, and all passes.

    Args:
        has_tp: whether tensor-parallel collectives count, which they do not where they run under products.
    """

    def total(calls: Iterable[RankCall]) -> float:
        seconds = 0.0
        for call in calls:
            if call.case is not None:
                seconds += call.count * times.kernel(call.case, WHOLE).time_s
            elif call.transfer is not None and not call.is_beside and (has_tp or call.transfer.dim != "tp"):
                seconds += call.count * times.transfer(call.transfer).time_s
        return seconds

    forward_s = total(program.forward)
    return forward_s, total(program.micro_batch_calls())


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelTime:
    """Busy time of one micro-batch."""

    forward_s: float
    """Forward pass of the whole model."""
    whole_s: float
    """All passes of the whole model."""
    layer_s: float
    """All passes of its quickest kind of layer."""


def _model_time(shape: TransformerShape, plan: TrainingPlan, program_time: ProgramTime) -> _ModelTime:
    """Return the time of the whole model from models of few layers, whose differences are the layers' own."""
    kinds = [(count, kind) for count, kind in ((shape.dense_layer_count, 0), (shape.expert_layer_count, 1)) if count]
    first = kinds[0][1]
    base = (1 - first, first)
    least = program_time(_short_model(shape, *base), plan)
    forward_s, whole_s = least
    layers = []
    for count, kind in kinds:
        more = program_time(_short_model(shape, base[0] + (kind == 0), base[1] + (kind == 1)), plan)
        extra = count - (kind == first)
        forward_s += extra * (more[0] - least[0])
        whole_s += extra * (more[1] - least[1])
        layers.append(more[1] - least[1])
    return _ModelTime(forward_s=forward_s, whole_s=whole_s, layer_s=min(layers))


def _short_model(shape: TransformerShape, dense: int, experts: int) -> TransformerShape:
    """Return the model with so many layers of each kind."""
    if not shape.experts:
        return replace(shape, layer_count=dense)
    few = replace(shape.experts, dense_layer_count=dense, layer_step=1)
    return replace(shape, layer_count=dense + experts, experts=few)
