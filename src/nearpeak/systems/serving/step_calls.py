"""Kernels of one step of a serving engine: those that follow tokens, cached keys, prompt chunks and sampled rows."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from nearpeak.core.systems.rank_program import RankCall, Transfer
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.ops import case
from nearpeak.systems.serving.engine_costs import EngineCosts
from nearpeak.systems.transformer.attention_part import attention_calls
from nearpeak.systems.transformer.layer import layer_calls, layer_kinds
from nearpeak.systems.transformer.layout import FUSIONS, Formats, Layout
from nearpeak.systems.transformer.model_ends import embedding_calls, head_calls
from nearpeak.systems.transformer.token_batch import ServingBatch

ATTENTION = frozenset({"attention.decode", "attention.prefill", "attention.keys_up"})
"""Calls whose time follows the keys that tokens see; latents of cached prefixes are expanded for prompts."""
FUSED_POSITIONS = frozenset({"attention.rotary", "attention.cache"})
"""Calls that attention kernels of some engines do themselves."""
FUSED_ROUTING = frozenset({"experts.permute", "experts.sort", "experts.shared.output.reduce"})
"""Calls that fused mixtures of experts have not: rows are gathered by the loads of the grouped product, and shared and
routed experts are added before one all-reduce."""
SHARED = frozenset({"experts.up", "experts.activation", "experts.down"})
"""Calls that serve the tokens of all attention groups, however these are spread over them."""
EXPERT_LOAD = "uniform seed=0"
"""Routing of few tokens to experts: each draws its experts at random, and the fullest rank counts."""
DRAWN_TOKENS = 1024
"""Tokens up to which routing is drawn; beyond it the fullest of 8 ranks holds at most 6 % more than the mean."""


class StepCall(NamedTuple):
    """A kernel of a step and how often it runs."""

    name: str
    """Part of the model."""
    case: Case
    """The kernel's case."""
    times: int
    """How often it runs in a step."""
    kernel_count: int = 1
    """Kernels that the host launches for one call."""


class Rank(NamedTuple):
    """What one rank computes: the model, its layout, and how the engine calls it."""

    shape: TransformerShape
    layout: ServingLayout
    costs: EngineCosts


def token_calls(rank: Rank, tokens: int, *, is_prompt: bool = False) -> Iterator[StepCall]:
    """Yield the kernels that follow from the tokens of a step alone: all but attention and the head.

    Args:
        tokens: tokens of the whole step; groups that attend to different sequences hold equal parts of them.
        is_prompt: whether latent attention expands keys and values instead of absorbing their products.
    """
    rank_tokens = -(-tokens // rank.layout.attention_dp)
    batch = (
        ServingBatch(prefills=((rank_tokens, 0),))
        if is_prompt
        else ServingBatch(decode_count=rank_tokens, decode_cached_tokens=rank_tokens)
    )
    yield from _step_calls(rank, embedding_calls(rank.shape, layer_layout(rank.layout), batch).forward, 1)
    for calls, count in _layers(rank, batch):
        yield from _step_calls(rank, (call for call in calls if call.name not in ATTENTION), count)
    if rank.layout.pp > 1:
        sent = case("collective", kind="send", ranks=2, elements=rank_tokens * rank.shape.hidden, dtype="bf16")
        yield StepCall("pipeline.send", sent, rank.layout.pp - 1)


def row_calls(rank: Rank, rows: int) -> Iterator[StepCall]:
    """Yield the kernels of the output head and of sampling for `rows` tokens of the whole step."""
    rank_rows = -(-rows // rank.layout.attention_dp)
    batch = ServingBatch(decode_count=rank_rows, decode_cached_tokens=rank_rows)
    yield from _step_calls(rank, head_calls(rank.shape, layer_layout(rank.layout), batch).forward, 1)


def decode_calls(rank: Rank, sequences: int, kv_tokens: int) -> Iterator[StepCall]:
    """Yield decode attention over `kv_tokens` cached tokens of `sequences` sequences of one attention group."""
    yield from _attention(rank, ServingBatch(decode_count=sequences, decode_cached_tokens=kv_tokens))


def prompt_calls(rank: Rank, tokens: int, mean_keys: float) -> Iterator[StepCall]:
    """Yield prefill attention (causal), and the product that expands cached latents before it.

    Where a new token sees more keys in the mean than one chunk alone would give, the chunk has a cached prefix; where
    it sees fewer, the tokens are those of several equal prompts.

    Args:
        tokens: new tokens of all chunks.
        mean_keys: keys that a new token sees, in the mean.
    """
    length = min(tokens, max(1, round(2 * mean_keys - 1)))
    prefix = round(max(0.0, mean_keys - (length + 1) / 2))
    yield from _attention(rank, ServingBatch(prefills=((length, prefix),) * -(-tokens // length)))


@cache
def layer_layout(layout: ServingLayout, *, is_drawn: bool = False) -> Layout:
    """Return the layout of a layer on one rank.

    Experts of groups that attend to different sequences get their rows by an exchange; within one group all tokens are
    present and partial results are added.
    """
    formats = Formats(
        activation=layout.activation_format, attention=_scheme(layout.weight_format),
        ffn=_scheme(layout.expert_scheme), expert=_scheme(layout.expert_scheme), cache=layout.kv_format,
        scaling="current",
    )  # fmt: skip
    is_sent = layout.attention_dp > 1
    ep = layout.tp if is_sent else layout.ep
    return Layout(
        tp=layout.attention_tp, ep=ep, etp=layout.tp // ep, exchange="all_to_all" if is_sent else "all_reduce",
        expert_load=EXPERT_LOAD if is_drawn else "balanced", formats=formats, fusions=FUSIONS["serving"],
    )  # fmt: skip


def _scheme(form: str) -> str:
    return form if form in SCHEMES else ""


def _layers(rank: Rank, batch: ServingBatch) -> Iterator[tuple[tuple[RankCall, ...], int]]:
    """Yield the calls of each kind of layer with the number of such layers."""
    layout = layer_layout(rank.layout, is_drawn=batch.tokens * rank.layout.attention_dp <= DRAWN_TOKENS)
    for (has_experts, is_windowed), count in layer_kinds(rank.shape).items():
        calls = layer_calls(rank.shape, layout, batch, has_experts=has_experts, is_windowed=is_windowed).forward
        yield calls, count


def _attention(rank: Rank, batch: ServingBatch) -> Iterator[StepCall]:
    layout = layer_layout(rank.layout)
    windowed = sum(count for (_, is_windowed), count in layer_kinds(rank.shape).items() if is_windowed)
    for is_windowed, count in ((False, rank.shape.layer_count - windowed), (True, windowed)):
        if not count:
            continue
        calls = attention_calls(rank.shape, layout, batch, is_windowed=is_windowed).forward
        yield from _step_calls(rank, (call for call in calls if call.name in ATTENTION), count)


def _step_calls(rank: Rank, calls: Iterable[RankCall], count: int) -> Iterator[StepCall]:
    """Yield calls as kernels, without those that the engine's other kernels do along the way."""
    ranks = {"tp": rank.layout.attention_tp, "ep": layer_layout(rank.layout).ep}
    absent = (FUSED_POSITIONS if rank.costs.fuses_positions else frozenset()) | (
        FUSED_ROUTING if rank.costs.fuses_routing else frozenset()
    )
    for call in calls:
        if call.name in absent or (rank.costs.fuses_quantisation and call.name.endswith(".quantise")):
            continue
        if call.case is not None:
            yield StepCall(call.name, call.case, call.count * count, call.kernel_count)
        elif call.transfer is not None:
            yield StepCall(call.name, _collective(call.transfer, ranks, rank.costs), call.count * count)


def _collective(transfer: Transfer, ranks: Mapping[str, int], costs: EngineCosts) -> Case:
    """Return the case of a collective; an even number of elements goes to each rank."""
    count = ranks[transfer.dim]
    elements = -(-transfer.bytes // (dtype_of(costs.all_reduce_format).bytes(1) * count)) * count
    return case("collective", kind=transfer.kind, ranks=count, elements=elements, dtype=costs.all_reduce_format)
