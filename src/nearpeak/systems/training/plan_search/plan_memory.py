"""Memory of many training plans at once: the closed form of a rank's memory on columns of degrees."""

from typing import Any, cast

import numpy as np

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.memory.framework_rules import plan_rules
from nearpeak.systems.training.memory.memory_places import memory_places
from nearpeak.systems.training.memory.stage_layers import InFlight, chunks_in_flight, stage_layers
from nearpeak.systems.training.plan_search.plan_space import PlanGroup


def group_memory(shape: TransformerShape, group: PlanGroup, in_flight: InFlight = chunks_in_flight) -> Any:
    """Return the allocated bytes of each plan's fullest rank.

    Among stages of equal layers the first holds most micro-batches and the last the logits; where the leading layers of
    a mixture of experts are dense, the last stage with some of them and the first without are looked at too.
    """
    plans = cast(TrainingPlan, group)  # columns under the names of a plan's fields
    rules, activations = plan_rules(shape, plans)
    peak = np.zeros(len(group))
    stages = [np.zeros(len(group), np.int64), group.pp - 1]
    if shape.experts and shape.dense_layer_count:
        share = np.maximum(shape.layer_count // group.pp, 1)
        later = [shape.dense_layer_count // (share + extra) + step for extra in (0, 1) for step in (0, 1)]
        stages += [np.minimum(stage, group.pp - 1) for stage in later]
    for stage in stages:
        layers = stage_layers(shape, plans, stage)
        chunks = in_flight(plans, stage)
        for place in memory_places(shape, plans, layers, chunks=chunks, rules=rules, activations=activations):
            total: Any = 0.0
            for part in place.parts.values():
                total = total + part
            peak = np.maximum(peak, total)
    return peak
