"""Activation memory of transformer layers under none, selective or full recomputation, within and between passes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.systems.training.memory.saved_tensors import ActivationRules, TokenAxes, layer_input, layer_steps
from nearpeak.systems.training.memory.stage_layers import StageLayers
from nearpeak.systems.training.memory.tensor_lifetimes import LayerStep, layer_memory

_SCORES = frozenset({"attention.softmax", "attention.mask", "attention.dropped", "attention.statistics"})
"""What Megatron Core's selective recomputation of attention frees (Korthikanti et al. 2022, section 5)."""
_ALTERNATE = frozenset(
    {"x", "q", "v", "o", "attention.statistics", "ffn.gate", "ffn.up", "ffn.down.branch", "shared.gate", "experts.up"}
)
"""What operator-selective checkpointing keeps besides the layer's input: attention's output and every other product's
(torchtitan, distributed/activation_checkpoint.py, mode `selective`, option `op`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """What the layers of a stage keep and need for one micro-batch."""

    kept_bytes: int
    """Of all layers, between the passes."""
    layer_bytes: int
    """Of the largest layer."""
    forward_bytes: int
    """Needed by the forward pass of a layer besides."""
    backward_bytes: int
    """Needed by the backward pass of a layer besides, its recomputed tensors included."""
    residual_bytes: int
    """The residual stream."""


def kept_names(plan: TrainingPlan, steps: Sequence[LayerStep]) -> frozenset[str]:
    """Return the names of the tensors of a layer that stay from its forward to its backward pass."""
    saved = frozenset(name for step in steps for name in step.saves)
    if plan.recompute == "full":
        return frozenset({"x"})
    if plan.recompute == "none":
        return saved
    if plan.framework in ("megatron-lm", "deepspeed"):
        return saved - _SCORES
    made = {tensor.name for step in steps for tensor in step.makes} | {"x"}
    is_gated = "ffn.gate" in made
    return _ALTERNATE & made - (set() if is_gated else {"ffn.down.branch"})


def stage_memory(
    shape: TransformerShape,
    plan: TrainingPlan,
    stage: StageLayers,
    axes: TokenAxes,
    activations: ActivationRules,
    gradient_bytes: float,
) -> StageMemory:
    """Return what the layers of a stage keep and need.

    Args:
        gradient_bytes: bytes per parameter of gradients that come into being during a layer's backward pass.
    """
    saved, last, forward, backward = 0, 0, 0, 0
    entry = layer_input(shape, axes, activations)
    for has_experts, count in ((False, stage.dense_count), (True, stage.expert_count))[: 2 if shape.experts else 1]:
        steps = layer_steps(shape, axes, activations, has_experts=has_experts)
        memory = layer_memory(steps, entry, gradient_bytes)
        names = kept_names(plan, steps)
        sizes = {tensor.name: tensor.size_bytes for step in steps for tensor in step.makes} | {"x": entry.size_bytes}
        held: int = 0
        for name in sorted(names):
            held = held + sizes[name]
        again = memory.saved_bytes - sum(memory.saved[name] for name in sorted(names) if name in memory.saved)
        if plan.recompute == "none":
            ahead, back = memory.forward_bytes - held, memory.backward_bytes - held
        else:
            kept_steps = [replace(step, saves=tuple(name for name in step.saves if name in names)) for step in steps]
            ahead = layer_memory(kept_steps, entry).forward_bytes - held
            extra = held - (memory.saved_bytes - again)  # kept, but not what a backward pass reads
            ready = maximum(memory.forward_bytes + entry.size_bytes, memory.backward_bytes)
            back = ready + extra - held
        is_there = count > 0
        saved, last = saved + count * held, maximum(last, held * is_there)
        forward, backward = maximum(forward, ahead * is_there), maximum(backward, back * is_there)
    return StageMemory(
        kept_bytes=saved, layer_bytes=last, forward_bytes=maximum(forward, 0), backward_bytes=backward,
        residual_bytes=entry.size_bytes,
    )  # fmt: skip
