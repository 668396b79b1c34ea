"""Requests served by replicas of a model with predicted step times: the engine's settings, its table, and the run."""

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
    from nearpeak.systems.serving.request_columns import Requests
    from nearpeak.systems.serving.serving_outcome import Outcome
    from nearpeak.systems.serving.step_grid import StepGrid

MOST_SEQUENCES = 512
"""Decoding sequences of a rank up to which the table has knots; beyond, times go on along the last segment."""


def serve_requests(
    requests: "Requests", model: str | TransformerShape, device: str | Target, *, engine: str = "vllm_v1",
    layout: ServingLayout | None = None, replica_count: int = 1, router: str = "least_kv", kv_block_count: int = 0,
    block_token_count: int = 16, step_token_count: int = 0, sequence_count: int = 0, context_token_count: int = 0,
    seed: int = 0, is_logged: bool = False,
) -> "Outcome":  # fmt: skip
    """Return what replicas of a model make of requests.

    Args:
        kv_block_count: KV blocks of one attention rank, as an engine logs them at its start; without them, by the
            memory that weights and activations leave.
        step_token_count: most tokens of a step; 0 for the engine's default on large devices.
        sequence_count: most running sequences; 0 for the engine's default.
        context_token_count: longest context; requests beyond it are refused. 0 checks nothing.

    Raises:
        SpecError: the model does not fit, a request is longer than the context, or no cache holds it.

    >>> from nearpeak.systems.serving.loads.arrival_process import open_load
    >>> load = open_load(1.0, 20, input_count=512, output_count=32, seed=0)
    >>> outcome = serve_requests(load, "llama-3.1-8b", "h100_sxm", step_token_count=512, sequence_count=16)
    >>> bool(0.01 < (outcome.first_s - load.arrival_s).mean() < 0.1)
    True
    """
    from nearpeak.systems.serving.serving_run import serve

    longest = int((requests.input_count + requests.output_count).max())
    context = 1 << (max(context_token_count, longest, 2) - 1).bit_length()
    settings, grid = engine_of(
        model, device, engine, layout or ServingLayout(), context=context, blocks=kv_block_count,
        block_tokens=block_token_count, step_tokens=step_token_count, sequences=sequence_count,
        context_limit=context_token_count,
    )  # fmt: skip
    return serve(requests, settings, grid, replica_count=replica_count, router=router, seed=seed, is_logged=is_logged)


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
    from nearpeak.systems.serving.step_grid import rank_source, tabulate, whole_batch

    ranks, costs = source.rank.layout.attention_dp, source.rank.costs
    return tabulate(
        rank_source(source, ranks), step_token_count=tokens, sequence_count=sequences, context_token_count=context,
        sizes=[size for size in costs.graph_sizes if size % ranks == 0],
        prepare=lambda batches: source.prepare(whole_batch(batch, ranks) for batch in batches),
    )  # fmt: skip
