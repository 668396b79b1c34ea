"""Candidates for the peak of a rank's memory: the parts that are alive at each place of a training step."""

from dataclasses import dataclass
from typing import Any

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum, minimum
from nearpeak.systems.training.memory.framework_rules import MemoryRules
from nearpeak.systems.training.memory.layer_parameters import (
    embedding_parameters,
    final_norm_parameters,
    layer_parameters,
    position_parameters,
    vocabulary_rows,
)
from nearpeak.systems.training.memory.recomputation import StageMemory, stage_memory
from nearpeak.systems.training.memory.saved_tensors import COMPOSED_NORM_BYTES, FP32_BYTES, ActivationRules, TokenAxes
from nearpeak.systems.training.memory.stage_layers import StageLayers, held_copies, rank_chunks
from nearpeak.systems.transformer.expert_rows import busiest_expert_rows

_FULLY_SHARDED = ("zero3", "fsdp", "hsdp")

Parts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlace:
    """Parts that are alive at one place of a step."""

    name: str
    """Kind of place: `forward`, `loss`, `backward`, `first backward`, `ends`, `optimizer`."""
    parts: Parts
    """Bytes by kind of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters of a rank before they are sharded over replicas, and the replicas that share them."""

    layer: int
    """Largest layer's parameters, experts included."""
    layers: int
    """All layers' parameters but routed experts."""
    experts: int
    """Routed experts of all layers."""
    ends: int
    """Embedding, output head, final norm."""
    embedding: int
    """Embedding's or head's parameters."""
    replicas: int
    """Ranks that share what is not an expert."""
    expert_replicas: int
    """Ranks that share an expert."""

    def bytes(self, element_bytes: float, *, is_sharded: bool) -> Any:
        """Return the bytes of all parameters at so many per parameter."""
        if is_sharded:
            dense = ceil_div(self.layers + self.ends, self.replicas)
            return element_bytes * (dense + ceil_div(self.experts, self.expert_replicas))
        return element_bytes * (self.layers + self.ends + self.experts)


def rank_parameters(
    shape: TransformerShape, plan: TrainingPlan, stage: StageLayers, rules: MemoryRules
) -> RankParameters:
    """Return the parameters that a rank of a stage holds."""
    dense = layer_parameters(shape, has_experts=False, tp=plan.tp)
    expert = layer_parameters(shape, has_experts=True, tp=plan.tp, ep=plan.ep, etp=plan.etp) if shape.experts else dense
    embedding = embedding_parameters(shape, tp=plan.tp, padding=rules.vocabulary_padding)
    is_shared = stage.is_first * stage.is_last if shape.is_tied else 0
    norm = final_norm_parameters(shape)
    copies = held_copies(plan)
    replicas = plan.shard_count if plan.sharding == "hsdp" and plan.shard_count else plan.dp * plan.cp
    ends = embedding * (stage.is_first + stage.is_last - is_shared)
    wide = (expert.dense + expert.experts) * (stage.expert_count > 0)
    return RankParameters(
        layer=maximum(dense.dense * (stage.dense_count > 0), wide),
        layers=copies * (stage.dense_count * dense.dense + stage.expert_count * expert.dense),
        experts=copies * stage.expert_count * expert.experts,
        ends=ends + position_parameters(shape) * stage.is_first + norm * stage.is_last,
        embedding=embedding,
        replicas=replicas,
        expert_replicas=maximum(replicas * plan.tp // (plan.ep * plan.etp), 1),
    )


def expert_load_ratio(shape: TransformerShape, plan: TrainingPlan) -> float:
    """Return the rows of the experts of the busiest rank over the mean of all ranks.

    >>> from nearpeak.core.systems.transformer import Experts, TransformerShape
    >>> shape = TransformerShape(name="moe", layer_count=2, hidden=64, head_count=4, kv_head_count=4, head_width=16,
    ...     ffn=128, is_gated=True, vocabulary=256, experts=Experts(count=8, per_token=2, width=16))
    >>> plan = TrainingPlan(dp=4, ep=4, micro_batch=1, global_batch=4, sequence=256, expert_load="zipf exponent=1")
    >>> round(expert_load_ratio(shape, plan), 2)
    2.01
    """
    if shape.experts is None or plan.expert_load == "balanced":
        return 1.0
    tokens = ceil_div(plan.micro_batch * plan.sequence, plan.cp) * plan.ep
    busiest = busiest_expert_rows(shape.experts, tokens, plan.ep, plan.expert_load)
    return busiest.total * plan.ep / (tokens * shape.experts.per_token)


def memory_places(
    shape: TransformerShape,
    plan: TrainingPlan,
    stage: StageLayers,
    *,
    chunks: int,
    rules: MemoryRules,
    activations: ActivationRules,
) -> list[MemoryPlace]:
    """Return the parts that are alive at each candidate for the peak; degrees may be NumPy columns.

    Between two neighbouring candidates every part changes linearly from layer to layer: the peak is at one of them.

    Args:
        chunks: model chunks in flight.
    """
    axes = TokenAxes(
        token_count=ceil_div(plan.micro_batch * plan.sequence, plan.cp), key_count=plan.sequence, tp=plan.tp,
        is_sequence_parallel=plan.sequence_parallel, etp=plan.etp,
        expert_load=expert_load_ratio(shape, plan),
    )  # fmt: skip
    unsharded_bytes = rules.unsharded_gradient_bytes if is_fully_sharded(plan) else 0
    builder = _PlaceBuilder(
        shape=shape, plan=plan, stage=stage, chunks=chunks, rules=rules, axes=axes,
        parameters=rank_parameters(shape, plan, stage, rules),
        layers=stage_memory(shape, plan, stage, axes, activations, unsharded_bytes),
        activations=activations,
    )  # fmt: skip
    count = stage.layer_count
    places = [
        builder.forward(), builder.loss(), builder.head(), builder.head_backward(),
        builder.backward("backward", count, is_first=True), builder.optimizer(),
    ]  # fmt: skip
    if is_fully_sharded(plan) or not rules.keeps_gradients:
        places += [
            builder.backward("later backward", count - 1),
            builder.backward("second backward", 2),
            builder.backward("first backward", 1),
            builder.ends(),
        ]
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlaceBuilder:
    """Candidates of one stage."""

    shape: TransformerShape
    """Extents of the model."""
    plan: TrainingPlan
    """Plan, or a group of plans as columns."""
    stage: StageLayers
    """Layers of the pipeline stage."""
    chunks: int
    """Model chunks in flight."""
    rules: MemoryRules
    """What the framework keeps per parameter."""
    axes: TokenAxes
    """Extents of one micro-batch."""
    parameters: RankParameters
    """Parameters of the rank before sharding."""
    layers: StageMemory
    """Bytes of the stage's layers in each pass."""
    activations: ActivationRules
    """What the framework's operators save."""

    @property
    def is_gathered(self) -> bool:
        """Whether weights are gathered layer by layer."""
        return is_fully_sharded(self.plan)

    @property
    def in_flight_bytes(self) -> Any:
        """Activations of the chunks in flight."""
        return self.chunks * self.layers.kept_bytes / rank_chunks(self.plan)

    def held(self, gradient_share: Any = 1) -> Parts:
        """Return what is alive at every place: weights, optimizer, gradients that have come into being, buckets."""
        plan, rules, parameters = self.plan, self.rules, self.parameters
        other = rules.layer_weight_bytes - rules.weight_bytes if rules.layer_weight_bytes else 0
        casts = (rules.cast_bytes + other) * (parameters.layers + parameters.experts)
        keeps = rules.keeps_gradients or (plan.micro_batch_count > 1)
        reduced_share: Any = keeps * 1.0
        share = maximum(reduced_share, gradient_share)
        gradients = parameters.bytes(rules.gradient_bytes, is_sharded=plan.sharding in ("zero2", *_FULLY_SHARDED))
        count = parameters.layers + parameters.ends + parameters.experts
        overlapped = 2 if plan.dp_overlap else 1
        buckets = minimum(rules.reduce_elements, count) * rules.reduce_bytes * overlapped * (plan.sharding != "none")
        return {
            "weights": parameters.bytes(rules.weight_bytes, is_sharded=self.is_gathered) + casts + rules.adapter_bytes,
            "optimizer": parameters.bytes(rules.optimizer_bytes, is_sharded=plan.sharding != "none"),
            "gradients": gradients * share,
            "buckets": buckets + count * rules.bucket_copy_bytes * (plan.dp > 1),
            "workspace": rules.workspace_bytes,
            "communication": 2 * self.layers.residual_bytes * (plan.pp > 1),
        }

    def gathered(self, layers: int, remaining: int, *, ends: bool) -> Any:
        """Return the bytes of gathered weights: so many layers, and embedding and head.

        Args:
            remaining: layers whose backward pass is to come, whose weights stay where they are gathered once.
        """
        if not self.is_gathered:
            return 0
        elements: Any = layers * self.parameters.layer
        if self.plan.sharding == "zero2":
            whole = self.parameters.layers + self.parameters.experts
            elements = whole * remaining / maximum(self.stage.layer_count, 1)
        return (elements + ends * self.parameters.ends) * self.rules.gathered_bytes

    def forward(self) -> MemoryPlace:
        """Return the forward pass of the last layer while most chunks are in flight."""
        parts = self.held(0)
        parts["activations"] = self.in_flight_bytes
        parts["transient"] = self.layers.forward_bytes
        parts["gathers"] = self.gathered(2, self.stage.layer_count, ends=True)
        return MemoryPlace(name="forward", parts=parts)

    def loss(self) -> MemoryPlace:
        """Return the loss and its gradient on the last stage."""
        plan, loss, is_last = self.plan, self.rules.loss, self.stage.is_last
        waiting = plan.micro_batch_count if plan.schedule == "gpipe" else 1
        rows = vocabulary_rows(self.shape, tp=plan.tp if loss.is_split else 1, padding=self.rules.vocabulary_padding)
        logits = self.axes.token_count * rows
        peak = max(loss.forward_bytes, loss.backward_bytes)
        parts = self.held(0)
        parts["activations"] = self.in_flight_bytes + is_last * waiting * self.head_bytes()
        parts["logits"] = is_last * logits * (peak + (waiting - 1) * loss.saved_bytes)
        parts["gathers"] = self.gathered(0, self.stage.layer_count, ends=True)
        return MemoryPlace(name="loss", parts=parts)

    def head(self) -> MemoryPlace:
        """Return the backward pass of the head's product: the logits' gradient and that of the normed stream."""
        plan, rules, is_last = self.plan, self.activations, self.stage.is_last
        place = self.loss()
        parts = dict(place.parts)
        element = rules.element_bytes
        gradient = self.axes.token_count * self.shape.hidden * element
        rows = vocabulary_rows(self.shape, tp=plan.tp if self.rules.loss.is_split else 1)
        parts["logits"] = is_last * self.axes.token_count * rows * element
        parts["transient"] = is_last * gradient * (1 + rules.keeps_gathered * (plan.tp > 1))
        return MemoryPlace(name="head", parts=parts)

    def head_bytes(self) -> Any:
        """Return what the final norm and the head keep, logits apart."""
        elements = self.axes.residual_tokens * self.shape.hidden
        return self.normed_bytes() + (self.layers.residual_bytes if self.is_norm_fused else 2 * FP32_BYTES * elements)

    def head_backward(self) -> MemoryPlace:
        """Return the backward pass of the final norm, while the last layer's weights are gathered."""
        is_last = self.stage.is_last
        parts = self.held(0)
        parts["activations"] = self.in_flight_bytes + is_last * (self.head_bytes() - self.normed_bytes())
        parts["transient"] = is_last * (self.normed_bytes() + self.norm_backward_bytes())
        parts["gathers"] = self.gathered(1, self.stage.layer_count, ends=True)
        parts["gradients"] = parts["gradients"] + is_last * self.unsharded_bytes(self.parameters.embedding)
        return MemoryPlace(name="final norm", parts=parts)

    def backward(self, name: str, remaining: int, *, is_first: bool = False) -> MemoryPlace:
        """Return the backward pass of a layer of the stage, `remaining` layers from its first, itself included.

        Args:
            is_first: whether it is the first backward pass after most chunks are in flight.
        """
        count = maximum(self.stage.layer_count, 1)
        remaining = maximum(minimum(remaining, self.stage.layer_count), 1)
        # The last layer's backward pass comes first: no layer before it waits for its reduction.
        reduced = (1 - is_first) * (remaining < self.stage.layer_count)
        parts = self.held((count - remaining) / count * self.layer_share())
        held = self.in_flight_bytes - (self.stage.layer_count - remaining) * self.layers.layer_bytes
        parts["activations"] = maximum(held, 0)
        parts["transient"] = self.layers.backward_bytes
        parts["gathers"] = self.gathered(minimum(remaining, 2), remaining, ends=True)
        ends = self.stage.is_last * self.parameters.embedding
        parts["gradients"] = parts["gradients"] + self.unsharded_bytes(ends)
        if self.is_gathered:
            parts["buckets"] = parts["buckets"] + reduced * self.parameters.layer * self.rules.reduce_bytes
        return MemoryPlace(name=name, parts=parts)

    def ends(self) -> MemoryPlace:
        """Return the reduction of the gradients of embedding and head, after all layers."""
        parts = self.held(self.layer_share() if self.is_gathered else 1)
        elements = self.parameters.ends
        parts["gradients"] = parts["gradients"] + self.unsharded_bytes(elements)
        parts["buckets"] = parts["buckets"] + self.is_gathered * elements * self.rules.reduce_bytes
        return MemoryPlace(name="ends", parts=parts)

    def layer_share(self) -> Any:
        """Return the parameters of layers over all of the rank's."""
        layers = self.parameters.layers + self.parameters.experts
        return layers / maximum(layers + self.parameters.ends, 1)

    def unsharded_bytes(self, elements: Any) -> Any:
        """Return the bytes of gradients that wait to be reduced and sharded."""
        return elements * self.rules.unsharded_gradient_bytes * self.is_gathered

    def normed_bytes(self) -> Any:
        """Return the bytes of the final norm's output as the head keeps it."""
        tokens = self.axes.token_count if self.activations.keeps_gathered else self.axes.residual_tokens
        return tokens * self.shape.hidden * self.activations.element_bytes

    def norm_backward_bytes(self) -> Any:
        """Return what the final norm's backward pass needs besides its upstream gradient."""
        elements = self.axes.residual_tokens * self.shape.hidden
        return elements * (self.activations.residual_bytes if self.is_norm_fused else COMPOSED_NORM_BYTES)

    @property
    def is_norm_fused(self) -> bool:
        """Whether norms are one kernel that keeps its input and statistics."""
        return self.activations.is_norm_fused or self.shape.norm == "layer_norm"

    def optimizer(self) -> MemoryPlace:
        """Return the optimizer's step."""
        rules, plan = self.rules, self.plan
        parts = self.held(1)
        is_sharded = plan.sharding != "none"
        parts["transient"] = self.parameters.bytes(rules.optimizer_transient_bytes, is_sharded=is_sharded)
        gathered = minimum(rules.gather_elements, self.parameters.layers + self.parameters.ends)
        parts["gathers"] = gathered * rules.gathered_bytes * (plan.sharding in ("zero1", "zero2"))
        return MemoryPlace(name="optimizer", parts=parts)


def is_fully_sharded(plan: TrainingPlan) -> bool:
    """Return whether weights are sharded over replicas and gathered: under fully_shard always, or ZeRO-3.

    zero2 of fully_shard keeps them gathered from the forward to the backward pass (reshard_after_forward=False).
    """
    return plan.sharding in _FULLY_SHARDED or (plan.framework == "fsdp2" and plan.sharding == "zero2")
