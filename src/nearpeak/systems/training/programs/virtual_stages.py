"""Layers of the virtual stages of a pipeline: which chunk of which stage holds which layers."""

from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStage:
    """One chunk of consecutive layers."""

    first_layer: int
    """First of its layers, counted from 0."""
    layer_count: int
    """Layers."""
    is_first: bool
    """Whether it holds the embedding."""
    is_last: bool
    """Whether it holds the output head."""


def virtual_stage(
    shape: TransformerShape, plan: TrainingPlan, stage: int, chunk: int, layer_counts: Sequence[int] | None = None
) -> VirtualStage:
    """Return the chunk of layers of a pipeline rank: chunk c of stage s is the virtual stage c · pp + s.

    Args:
        layer_counts: layers of each virtual stage in order of the model; equal shares unless given, the rest on the
            first ones.

    Raises:
        SpecError: no such stage or chunk, or counts that do not add up to the model's layers.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> plan = TrainingPlan(pp=4, chunk_count=2, micro_batch=1, global_batch=8, sequence=8)
    >>> virtual_stage(shape_of("llama-3-8b"), plan, 1, 1).first_layer
    20
    """
    count = plan.pp * plan.chunk_count
    if not (0 <= stage < plan.pp and 0 <= chunk < plan.chunk_count):
        raise SpecError(f"stage {stage}, chunk {chunk}: the plan has stages 0 to {plan.pp - 1} and chunks 0 to "
                        f"{plan.chunk_count - 1}")  # fmt: skip
    if count > shape.layer_count:
        raise SpecError(
            f"{shape.name}: pp={plan.pp} × chunk_count={plan.chunk_count} leave some of {count} chunks without one of "
            f"its {shape.layer_count} layers; pp={max(shape.layer_count // plan.chunk_count, 1)} would not"
        )
    if layer_counts is None:
        share, rest = divmod(shape.layer_count, count)
        layer_counts = [share + (place < rest) for place in range(count)]
    if len(layer_counts) != count or sum(layer_counts) != shape.layer_count:
        raise SpecError(
            f"{shape.name}: {len(layer_counts)} layer counts that add up to {sum(layer_counts)}; {count} that add up "
            f"to {shape.layer_count} would be right"
        )
    place = chunk * plan.pp + stage
    return VirtualStage(
        first_layer=sum(layer_counts[:place]), layer_count=layer_counts[place], is_first=place == 0,
        is_last=place == count - 1,
    )  # fmt: skip
