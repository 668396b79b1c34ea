"""Settings of an inference engine on a device, and the table of its predicted step times."""

from functools import lru_cache
from typing import TYPE_CHECKING

from nearpeak.api.serving.serving_plan import kv_token_count, step_table
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.systems.serving.engine_costs import EngineCosts
from nearpeak.systems.serving.step_latency import StepTable

if TYPE_CHECKING:
    from nearpeak.systems.serving.step_grid import StepGrid

MOST_SEQUENCES = 512
"""Decoding sequences of a rank up to which the table has knots; beyond, times go on along the last segment."""


def engine_of(
    model: str | TransformerShape, device: str | Target, engine: str | EngineCosts, layout: ServingLayout, *,
    context: int, blocks: int = 0, block_tokens: int = 16, step_tokens: int = 0, sequences: int = 0,
    context_limit: int = 0,
) -> tuple[Engine, "StepGrid"]:  # fmt: skip
    """Return the settings of an engine family on a device, and the table of its step times up to a context.

    Attention data-parallel ranks have batches and caches of their own and step together.
    """
    from nearpeak.targets import target_of

    target = device if isinstance(device, Target) else target_of(device)
    source = step_table(model, target, engine, layout)
    costs, ranks = source.rank.costs, layout.attention_dp
    tokens, limit = step_tokens or costs.token_budget, sequences or costs.sequence_limit
    if not blocks:
        blocks = kv_token_count(source.rank, target, token_budget=tokens) // block_tokens // ranks
    settings = costs.engine(blocks, rank_count=ranks, block_tokens=block_tokens, step_tokens=tokens, sequences=limit,
                            context_limit=context_limit)  # fmt: skip
    return settings, _grid(source, tokens, min(limit, MOST_SEQUENCES), context)


@lru_cache(maxsize=128)
def _grid(source: StepTable, tokens: int, sequences: int, context: int) -> "StepGrid":
    """Return the table of a source's step times; sources are kept by what they answer for."""
    from nearpeak.systems.serving.step_grid import tabulate

    return tabulate(
        source, step_token_count=tokens, sequence_count=sequences, context_token_count=context,
        sizes=source.rank.costs.graph_sizes, prepare=source.prepare, rank_count=source.rank.layout.attention_dp,
        shared_s=source.shared_s,
    )  # fmt: skip
