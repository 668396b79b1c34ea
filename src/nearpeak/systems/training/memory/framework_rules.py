"""Memory rules of training frameworks: bytes per parameter, what is sharded, buckets, loss and saved activations."""

from dataclasses import dataclass, replace

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.training.memory.saved_tensors import ActivationRules
from nearpeak.systems.training.programs.plan_layout import plan_fusions


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRules:
    """Bytes per logit of the output head and its cross entropy."""

    forward_bytes: int
    """Peak of the forward pass."""
    saved_bytes: int
    """Kept for the backward pass."""
    backward_bytes: int
    """Peak of the backward pass."""
    is_split: bool = True
    """Whether the vocabulary stays split over tensor-parallel ranks."""
    source: str
    """Operators that the figures follow from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """What a framework holds per parameter and besides."""

    weight_bytes: int
    """Weights as held between steps."""
    layer_weight_bytes: float = 0
    """Weights of layers where they are held in another format than embedding and head; 0 for the same."""
    gradient_bytes: int
    """Gradients as accumulated."""
    optimizer_bytes: int
    """Master weights, where kept apart, and moments."""
    cast_bytes: float = 0
    """Copies of weights in the compute format that live from the forward to the backward pass."""
    gathered_bytes: int = 2
    """Gathered weights of a unit of fully sharded training."""
    unsharded_gradient_bytes: int = 2
    """Gradients of a unit before they are reduced."""
    reduce_bytes: int = 4
    """Elements of the reduction's input."""
    keeps_gradients: bool = True
    """Whether gradients are allocated once for all steps; otherwise they come into being in the backward pass."""
    vocabulary_padding: int = 1
    """Rows of embedding and head are padded to this times the tensor-parallel degree."""
    gather_elements: int = 0
    """Elements of the buffer in which updated weights are gathered."""
    reduce_elements: int = 0
    """Elements of the buffers in which gradients are reduced."""
    adapter_bytes: int = 0
    """Weights, gradients and optimizer of adapters, where all else is frozen."""
    workspace_bytes: int = 0
    """Workspaces of libraries that come from the framework's allocator."""
    bucket_copy_bytes: int = 0
    """Bytes per parameter of gradient buckets that are copies of the gradients."""
    optimizer_transient_bytes: int = 0
    """Bytes per parameter of the shard that the optimizer's step needs for a moment."""
    loss: LossRules
    """Output head and loss."""
    source: str
    """Documents of the figures."""


_LOSSES = {
    "parallel": LossRules(
        forward_bytes=6, saved_bytes=4, backward_bytes=6,
        source="Megatron Core, vocab_parallel_cross_entropy: bf16 logits beside an fp32 copy that becomes the softmax, "
        "then its gradient in place, then a bf16 cast",
    ),
    "eager": LossRules(
        forward_bytes=10, saved_bytes=4, backward_bytes=12,
        source="PyTorch, cross_entropy of logits.float(): log-probabilities are kept; both gradients are fp32",
    ),
    "fused": LossRules(
        forward_bytes=2, saved_bytes=2, backward_bytes=4,
        source="torch.compile of cross entropy: logits are kept in bf16, the gradient is written in bf16",
    ),
}  # fmt: skip

_MIXED = {
    "megatron-lm": MemoryRules(
        weight_bytes=2, gradient_bytes=4, optimizer_bytes=12, vocabulary_padding=128, loss=_LOSSES["parallel"],
        workspace_bytes=2 * 32 * 2**20,
        source="Transformer Engine, get_cublas_workspace_size_bytes, and PyTorch, CUBLAS_WORKSPACE_CONFIG: 32 MiB each "
        "from compute capability 9.0; Megatron-LM, docs/user-guide/features/dist_optimizer.md: 18 bytes per parameter, "
        "6 + 12/d distributed",
    ),
    "deepspeed": MemoryRules(
        weight_bytes=2, gradient_bytes=2, optimizer_bytes=12, vocabulary_padding=128, loss=_LOSSES["parallel"],
        gather_elements=500_000_000, reduce_elements=500_000_000, reduce_bytes=2, optimizer_transient_bytes=4,
        source="Rajbhandari et al. 2019, arXiv:1910.02054, section 3; DeepSpeed configuration, zero_optimization: "
        "allgather_bucket_size and reduce_bucket_size 5e8; its optimizers flatten the shard's gradients into fp32",
    ),
    "fsdp2": MemoryRules(
        weight_bytes=4, gradient_bytes=4, optimizer_bytes=8, keeps_gradients=False,
        loss=_LOSSES["eager"],
        source="PyTorch, torch.distributed.fsdp.fully_shard: fp32 shards, MixedPrecisionPolicy(bf16, reduce fp32)",
    ),
    "ddp": MemoryRules(
        weight_bytes=4, gradient_bytes=4, optimizer_bytes=8, cast_bytes=2, keeps_gradients=False,
        bucket_copy_bytes=4, optimizer_transient_bytes=4, loss=_LOSSES["eager"],
        source="PyTorch, torch.nn.parallel.DistributedDataParallel: buckets are copies unless gradient_as_bucket_view; "
        "torch.autocast caches bf16 casts of weights",
    ),
}  # fmt: skip

_FP8_INPUT_BYTES = {
    "fp8-delayed": 1, "fp8-current": 1, "fp8-row": 1, "fp8-block": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 9 / 16,
}  # fmt: skip
"""Bytes of a kept input of a product: element and its share of the block's scale; a scale of a row is next to none."""


def memory_rules(plan: TrainingPlan) -> MemoryRules:
    """Return the memory rules of a plan's framework in its precision.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> rules = memory_rules(TrainingPlan(micro_batch=1, global_batch=1, sequence=1024))
    >>> rules.weight_bytes + rules.gradient_bytes + rules.optimizer_bytes
    18
    """
    rules = _MIXED[plan.framework]
    if plan.precision in ("fp32", "tf32"):
        return replace(
            rules, weight_bytes=4, gradient_bytes=4, optimizer_bytes=8, cast_bytes=0, gathered_bytes=4,
            unsharded_gradient_bytes=4,
        )  # fmt: skip
    if plan.precision in _FP8_INPUT_BYTES and plan.framework in ("megatron-lm", "deepspeed"):
        return replace(rules, cast_bytes=2 * _FP8_INPUT_BYTES[plan.precision])
    if plan.is_compiled and plan.framework in ("fsdp2", "ddp"):
        return replace(rules, loss=_LOSSES["fused"])
    return rules


def activation_rules(plan: TrainingPlan) -> ActivationRules:
    """Return what the operators of a plan's framework save.

    Frameworks of PyTorch keep what tensor-parallel products gather (DTensor), where Megatron Core gathers twice; they
    keep products' inputs in bf16, where Transformer Engine keeps them in FP8.
    """
    fusions = plan_fusions(plan)
    is_fused = {
        "is_attention_fused": "attention" in fusions,
        "is_norm_fused": "norm" in fusions,
        "has_joint_gate": "gate_up" in fusions,
        "is_gate_fused": "activation" in fusions,
        "keeps_gathered": plan.framework in ("fsdp2", "ddp"),
    }
    if plan.precision in ("fp32", "tf32"):
        return ActivationRules(element_bytes=4, residual_bytes=4, product_input_bytes=4, **is_fused)
    keeps_narrow = plan.framework in ("megatron-lm", "deepspeed")
    return ActivationRules(
        product_input_bytes=_FP8_INPUT_BYTES.get(plan.precision, 2) if keeps_narrow else 2,
        residual_bytes=4 if plan.framework == "ddp" else 2,
        has_cast_copies=plan.framework == "ddp",
        **is_fused,
    )


def plan_rules(shape: TransformerShape, plan: TrainingPlan) -> tuple[MemoryRules, ActivationRules]:
    """Return the rules of a plan; with adapters, FP8 recipes hold the frozen weights of layers in FP8 alone."""
    if plan.adapter_rank:
        is_narrow = plan.precision in _FP8_INPUT_BYTES
        return adapter_rules(shape, plan, rank=plan.adapter_rank, has_narrow_weights=is_narrow)
    return memory_rules(plan), activation_rules(plan)


def adapter_rules(
    shape: TransformerShape, plan: TrainingPlan, *, rank: int, has_narrow_weights: bool, inner_bytes: float = 0
) -> tuple[MemoryRules, ActivationRules]:
    """Return the rules of low-rank adaptation of attention's projections, all else frozen.

    Frozen products keep no input; the norm before attention and attention's output feed the adapters and stay.

    Args:
        rank: rank of the adapters.
        has_narrow_weights: whether the frozen weights of layers are held in FP8 alone.
        inner_bytes: bytes in which the input of the activation is kept, 1 where it is stored in FP8.

    Source: Hu et al. 2021, arXiv:2106.09685; MLCommons training, llama2_70b_lora: rank 16 on linear_qkv, linear_proj.
    """
    whole, activations = memory_rules(plan), activation_rules(plan)
    queries, keys = shape.head_count * shape.head_width, 2 * shape.kv_head_count * shape.head_width
    elements = shape.layer_count * rank * (2 * shape.hidden + 2 * queries + keys) // (plan.tp * plan.pp)
    states = whole.weight_bytes + whole.gradient_bytes + whole.optimizer_bytes
    rules = replace(
        whole, gradient_bytes=0, optimizer_bytes=0, cast_bytes=0, reduce_elements=0, gather_elements=0,
        layer_weight_bytes=1 if has_narrow_weights else 0, adapter_bytes=elements * states,
    )  # fmt: skip
    frozen = replace(
        activations, product_input_bytes=activations.element_bytes, is_frozen=True, inner_bytes=inner_bytes
    )
    return rules, frozen
