"""Layout of a transformer's layers under a training plan."""

from dataclasses import replace

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError
from nearpeak.systems.transformer.layout import FUSIONS, Adapters, Layout, training_formats, validated

_FUSIONS = {"megatron-lm": "megatron-lm", "deepspeed": "megatron-deepspeed", "fsdp2": "eager", "ddp": "eager"}
_PADDING = 128
"""Rows to a multiple of which Megatron-LM pads the vocabulary of each rank (--make-vocab-size-divisible-by)."""


def plan_fusions(plan: TrainingPlan) -> frozenset[str]:
    """Return the fused kernels of a plan's framework.

    >>> sorted(plan_fusions(TrainingPlan(micro_batch=1, global_batch=1, sequence=8, framework="fsdp2")))
    ['attention', 'grouped']
    """
    if plan.is_compiled and plan.framework not in ("megatron-lm", "deepspeed"):
        return FUSIONS["compiled"]
    return FUSIONS[_FUSIONS[plan.framework]]


def plan_layout(shape: TransformerShape, plan: TrainingPlan, *, has_dropout: bool = False) -> Layout:
    """Return the layout of a plan with the formats and fusions of its framework.

    Raises:
        SpecError: a degree does not divide the shape or the sequence; the message names the nearest that does.
    """
    if plan.has_branches or plan.tile_row_count * plan.tile_column_count > 1:
        word = "branches" if plan.has_branches else "spatial"
        raise SpecError(f"{shape.name}: {word} is planned for captured models; tp, cp and pp split a transformer")
    is_megatron = plan.framework in ("megatron-lm", "deepspeed")
    formats = training_formats(plan.precision)
    if plan.framework != "megatron-lm":  # gradients keep the parameters' format, and add up unless replicas take them
        adds_up = plan.framework != "fsdp2" and plan.micro_batch_count > 1
        formats = replace(formats, gradient=formats.activation if adds_up else "")
    layout = Layout(
        tp=plan.tp, cp=plan.cp, ep=plan.ep, etp=plan.etp, expert_load=plan.expert_load,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        gathers_again=is_megatron, copies_sequences=not is_megatron, has_dropout=has_dropout,
        vocabulary_multiple=_PADDING if is_megatron else 1,
        formats=formats, fusions=plan_fusions(plan),
        adapters=Adapters(rank=plan.adapter_rank) if plan.adapter_rank else None,
    )  # fmt: skip
    # Context parallelism gives each rank two pieces of a sequence, sequence parallelism splits those once more.
    pieces = (2 * plan.cp if plan.cp > 1 else 1) * (plan.tp if layout.sequence_parallel else 1)
    if plan.sequence % pieces:
        near = max(plan.sequence // pieces, 1) * pieces
        raise SpecError(f"sequence {plan.sequence} is no multiple of {pieces} pieces (tp={plan.tp}, cp={plan.cp}); "
                        f"{near} would be")  # fmt: skip
    return validated(shape, layout)
