"""Proved lower bounds of a step's time: products at the peak rate, pipeline fill, and traffic through each tier."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.systems.fabric import Fabric
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.memory.layer_parameters import layer_parameters

_ELEMENT_BYTES = 2
"""Bytes of an activation or a gradient on a link; narrower traffic is not assumed away, so FP8 plans take 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """Rates that no kernel of a device exceeds."""

    flop_per_s: float
    """Peak dense rate of matrix products in the plan's precision."""


def step_floor(shape: TransformerShape, plan: Any, rates: DeviceRates, fabric: Fabric) -> Any:
    """Return seconds that no execution of a plan undercuts; of a group of plans, a column.

    Products run at the peak rate at best. Collectives of tensor parallelism count on top where the plan does not
    overlap them, because they stand between products; all others may hide, so that each tier gives a bound of its own.

    Args:
        plan: a TrainingPlan, or a group of plans whose degrees are columns.
    """
    flop = stage_flop(shape, plan)
    tier_s: list[Any] = [0.0] * len(fabric.tiers)
    serial_s: Any = 0.0
    for dim, (size, span) in traffic_bytes(shape, plan).items():
        place = np.zeros_like(span)  # the innermost tier that holds a group; the outermost where none does
        for number, tier in enumerate(fabric.tiers[:-1]):
            place = np.where(span > tier.device_count, number + 1, place)
        for number, tier in enumerate(fabric.tiers):
            seconds = np.where(place == number, size / tier.bandwidth_bytes_per_s, 0.0)
            tier_s[number] = tier_s[number] + seconds
            if dim == "tp" and not plan.tp_overlap:
                serial_s = serial_s + seconds
    busy_s = plan.micro_batch_count * flop["whole"] / rates.flop_per_s + serial_s
    floor: Any = busy_s * fill_ratio(plan, flop["forward"] / flop["whole"])
    for seconds in tier_s:
        floor = np.maximum(floor, seconds)
    return floor if np.ndim(floor) else float(floor)


def fill_ratio(plan: Any, forward_share: Any) -> Any:
    """Return the least time of a pipeline over the mean busy time of its stages, whatever the split of layers.

    Stage i idles until the stages before it have passed on the first micro-batch, and, unless gradients of weights may
    fill the end, after its last one until they have passed it back: m w_i + r (w_0 + … + w_(i-1)) <= T for each i, with
    r the share of a micro-batch's work that passes. The split that makes all equal gives T = r W / (1 - (1 - r/m)^p),
    W the sum of w.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> round(fill_ratio(TrainingPlan(pp=2, micro_batch=1, global_batch=1, sequence=8), 1 / 3), 6)
    2.0
    """
    share: Any = 1.0
    if plan.schedule.startswith("zb"):
        share = forward_share
    if plan.schedule.startswith("dualpipe"):
        return np.ones_like(plan.pp) * 1.0
    passing = share / plan.chunk_count
    batches = plan.micro_batch_count
    return passing * plan.pp / batches / (1 - (1 - passing / batches) ** plan.pp)


def stage_flop(shape: TransformerShape, plan: Any) -> dict[str, Any]:
    """Return least FLOP of matrix products per rank and micro-batch on an average stage: forward, and whole.

    Products of weights take 2 FLOP per parameter and token, forward, and twice that backward; attention 4 per pair and
    width, half of it masked where causal; full recomputation runs the layers' forward pass once more.
    """
    tokens = plan.micro_batch * plan.sequence / plan.cp
    width = shape.head_count * shape.head_width
    if shape.latent:
        latent = shape.latent
        width = shape.head_count * (latent.key_width + latent.rotary_width + latent.value_width) // 2
    pairs = plan.sequence / (2 if shape.is_causal else 1)
    if shape.window:
        pairs = min(pairs, shape.window / 2)
    layers = 0.0
    for has_experts, count in ((False, shape.dense_layer_count), (True, shape.expert_layer_count)):
        part = layer_parameters(shape, has_experts=has_experts)
        active = part.attention + part.feed_forward
        if has_experts and shape.experts:
            active += part.experts * shape.experts.per_token // shape.experts.count
        layers += count * (2 * active + 4 * pairs * width)
    head = 2 * shape.vocabulary * shape.hidden
    forward = tokens * layers / (plan.tp * plan.pp)
    recomputed = forward if plan.recompute == "full" else 0.0
    return {"forward": forward, "whole": 3 * (forward + tokens * head / (plan.tp * plan.pp)) + recomputed}


def traffic_bytes(shape: TransformerShape, plan: Any) -> dict[str, tuple[Any, Any]]:
    """Return bytes that a rank sends per step over each mesh dimension, and the ranks that a group of it spans.

    An all-reduce counts as much as one whole message and no more, which holds with in-switch addition too.
    """
    element = 1 if plan.precision.startswith(("fp8", "mxfp8", "nvfp4")) else _ELEMENT_BYTES
    tokens = plan.micro_batch * plan.sequence / plan.cp * plan.micro_batch_count
    layers = shape.layer_count / plan.pp
    message = tokens * shape.hidden * element
    replicas = plan.dp * plan.cp
    dense, expert = (layer_parameters(shape, has_experts=has_experts).dense for has_experts in (False, True))
    reduced = shape.dense_layer_count * dense + shape.expert_layer_count * expert
    parameters = reduced / (plan.tp * plan.pp)  # of an average stage, experts left out
    traffic = {
        "tp": (4 * layers * message * (plan.tp - 1) / plan.tp, plan.tp),
        "dp": (2 * parameters * _ELEMENT_BYTES * (replicas - 1) / replicas, plan.tp * replicas),
    }
    if shape.experts:
        share = shape.expert_layer_count / plan.pp
        routed = tokens * shape.experts.per_token * shape.hidden * element / plan.tp
        traffic["ep"] = (4 * share * routed * (plan.ep - 1) / plan.ep, plan.tp * plan.ep)
    return traffic
