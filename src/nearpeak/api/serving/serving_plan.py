"""Latency, throughput and cost of a served model from predicted kernels."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nearpeak.base.identity_key import Same
from nearpeak.core.systems.serving_answer import ServingAnswer, Span90
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.systems.serving.adapter_calls import adapter_bytes
from nearpeak.systems.serving.cache_memory import (
    bytes_per_element,
    cache_blocks,
    cache_token_bytes,
    profile_bytes,
    weight_bytes,
)  # fmt: skip
from nearpeak.systems.serving.closed_loop import ClosedLoop, closed_loop_times
from nearpeak.systems.serving.engine_costs import EngineCosts, engine_costs
from nearpeak.systems.serving.offline_throughput import best_throughput, steady_steps
from nearpeak.systems.serving.serving_cost import price_per_million_tokens
from nearpeak.systems.serving.static_batch import RequestBatch, batch_times
from nearpeak.systems.serving.step_calls import Rank, decode_calls, token_calls
from nearpeak.systems.serving.step_latency import FAMILIES, KernelTimes, StepTable
from nearpeak.systems.training.memory.layer_parameters import layer_parameters

FEW = 16
"""Cases up to which one by one is faster than a table."""
_KV = "KV memory"
BLOCK_TOKENS = 16
"""Tokens of a block of the cache; the capacity hardly depends on it."""
Mix = Sequence[tuple[float, StepBatch]]
"""Steps with their shares of all."""


def serving_time(
    model: str | TransformerShape, device: str | Target, *, engine: str | EngineCosts = "vllm_v1",
    layout: ServingLayout | None = None, input_tokens: int, output_tokens: int, concurrency: int = 0, batch: int = 0,
    requests_per_client: int = 10, length_spread: float = 0.0, reply_tokens: int = 1,
    price_usd_per_device_hour: float = 0.0, has_trust: bool = True,
) -> ServingAnswer:  # fmt: skip
    """Return what one replica of a model reaches.

    Args:
        model: name, config.json or shape.
        concurrency: clients that each wait for their answer before they ask again.
        batch: requests that arrive at once, nothing else; neither: requests always wait (highest throughput).
        length_spread: half width of the spread of output lengths, as a share of their mean.
        reply_tokens: tokens of one message to the client (the stream interval of TensorRT-LLM).
        price_usd_per_device_hour: price of one device; no cost is answered without it.
        has_trust: whether the answer says how far the kernels' data are from the device.

    Raises:
        SpecError: the model does not fit, the cache does not hold one request, or both loads are given.
    """
    if concurrency and batch:
        raise SpecError(f"serving: concurrency={concurrency} and batch={batch} contradict each other; give one")
    table = step_table(model, device, engine, layout or ServingLayout())
    target, costs = _target(device), table.rank.costs
    kv_tokens = kv_token_count(table.rank, target, token_budget=costs.token_budget)
    if concurrency:
        loop = ClosedLoop(
            concurrency=concurrency, input_tokens=input_tokens, output_tokens=output_tokens,
            requests_per_client=requests_per_client, output_spread=length_spread, reply_tokens=reply_tokens,
        )  # fmt: skip
        answer = _loop_answer(table, target, loop, kv_tokens, price_usd_per_device_hour)
    elif batch:
        requests = request_batch_of(costs, batch, input_tokens, output_tokens, kv_tokens)
        answer = _batch_answer(table, target, requests, price_usd_per_device_hour)
    else:
        tokens = (input_tokens, output_tokens)
        if costs.is_overlapped:  # without streams, work per sequence passes beside the device's
            table = step_table(table.rank.shape, target, replace(costs, hides_sequences=True), table.rank.layout)
        answer = _offline_answer(table, target, tokens, kv_tokens, price_usd_per_device_hour)
    cached = input_tokens + output_tokens // 2
    return replace(answer, trust=trust_of(table, target, round(answer.mean_batch), cached)) if has_trust else answer


def step_table(
    model: str | TransformerShape, device: str | Target, engine: str | EngineCosts, layout: ServingLayout
) -> StepTable:
    """Return the times of steps of one replica, a `TimeSource` for engines and other simulators.

    >>> table = step_table("llama-3.1-8b", "h100_sxm", "vllm_v1", ServingLayout())
    >>> 5e-3 < table(StepBatch.of_decode(1, kv_count=512)) < 9e-3
    True
    """
    shape = model if isinstance(model, TransformerShape) else _shape(model)
    costs = engine if isinstance(engine, EngineCosts) else engine_costs(engine)
    target = _target(device)
    return _step_table(shape, Same(target), layout, costs.beside(target.architecture))


def kernel_times_of(target: Target) -> KernelTimes:
    """Return the function that predicts cases on a device, a whole table at once; each case is predicted once."""
    import numpy as np

    from nearpeak.ops.shared.tables.case_table import table_of_cases
    from nearpeak.prediction.case_prediction import predict_case, predict_table

    known: dict[Case, tuple[float, float, float]] = {}

    def times(cases: Sequence[Case]) -> Any:
        new = [case for case in cases if case not in known]
        if len(new) > FEW:
            table = predict_table(table_of_cases(new), target)
            rows = zip(table.predicted_s.tolist(), table.low_s.tolist(), table.high_s.tolist(), strict=True)
            known.update(zip(new, rows, strict=True))
        else:
            single = [predict_case(case, target) for case in new]
            known.update(
                (case, (predicted.time_s, predicted.low_s, predicted.high_s))
                for case, predicted in zip(new, single, strict=True)
            )
        return np.array([known[case] for case in cases])

    return times


def kv_token_count(rank: Rank, target: Target, *, token_budget: int) -> int:
    """Return the tokens that the cache of a replica holds; groups that attend to different sequences add up.

    Raises:
        SpecError: weights and activations leave no room.
    """
    shape, layout, costs = rank.shape, rank.layout, rank.costs
    capacity = target.dram.capacity_bytes
    if not capacity:
        raise SpecError(f"{target.name}: no document states its memory; give a target that does")
    tp, ranks = layout.attention_tp, layout.tp
    token = cache_token_bytes(shape, number_format=layout.kv_format, tp=tp)
    if shape.experts is None:
        weights = weight_bytes(shape, number_format=_stored(layout.weight_format), tp=tp, pp=layout.pp)
    else:
        form = _stored(layout.expert_scheme)
        weights = weight_bytes(shape, number_format=form, tp=tp, pp=layout.pp, ep=min(ranks, shape.experts.count))
        wider = bytes_per_element(_stored(layout.weight_format)) - bytes_per_element(form)
        attention = layer_parameters(shape, has_experts=True, tp=tp).attention
        weights += round(shape.layer_count * attention * wider / layout.pp)
    weights += adapter_bytes(shape, layout)
    peak = profile_bytes(shape, token_budget=token_budget, sequence_count=min(costs.sequence_limit, 256), tp=tp)
    blocks = cache_blocks(device_bytes=capacity, utilisation=costs.memory_share, weights_bytes=weights,
                          profile_peak_bytes=peak, token_bytes=token, block_tokens=BLOCK_TOKENS)  # fmt: skip
    return int(blocks * costs.free_share) * BLOCK_TOKENS * layout.attention_dp * layout.pp


def request_batch_of(
    costs: EngineCosts, sequences: int, input_tokens: int, output_tokens: int, kv_tokens: float
) -> RequestBatch:
    """Return the batch that an engine runs for so many requests."""
    return RequestBatch(
        sequences=sequences, input_tokens=input_tokens, output_tokens=output_tokens, kv_tokens=kv_tokens,
        token_budget=costs.token_budget, sequence_limit=costs.sequence_limit,
    )  # fmt: skip


def _loop_answer(
    table: StepTable, target: Target, loop: ClosedLoop, kv_tokens: int, price: float
) -> ServingAnswer:  # fmt: skip
    costs, ranks = table.rank.costs, table.rank.layout.attention_dp
    whole = loop.input_tokens + loop.output_tokens
    budget = costs.token_budget if costs.chunks_prompts else max(costs.token_budget, 2 * whole)
    engine = costs.engine(kv_tokens // BLOCK_TOKENS // ranks, rank_count=ranks, block_tokens=BLOCK_TOKENS,
                          step_tokens=budget)  # fmt: skip
    grid = loop.table(engine, table, costs.graph_sizes, table.prepare, table.shared_s)
    times = closed_loop_times(loop, engine, grid)
    latency_s = times.ttft_s + (loop.output_tokens - 1) * times.tpot_s
    rate = loop.concurrency * loop.output_tokens / latency_s
    cached = loop.input_tokens + loop.output_tokens // 2
    count = max(1, min(round(times.mean_batch), loop.concurrency))
    step = StepBatch.of_decode(count, kv_count=count * cached)
    prompt = StepBatch.of_prompt(min(loop.input_tokens, budget * ranks))
    is_full = (
        times.mean_batch < 0.8 * loop.concurrency and times.queued_share > 0.5 and kv_tokens < loop.concurrency * whole
    )
    base = _answer(table, target, ((1.0, step),), rate, price, kv_tokens)
    return replace(
        base,
        load=f"closed loop of {loop.concurrency} clients, {loop.input_tokens} in, {loop.output_tokens} out",
        ttft_s=_span(table, ((1.0, prompt),), times.ttft_s, table.rank.costs.queue_ratio),
        tpot_s=_span(table, ((1.0, step),), times.tpot_s), latency_s=latency_s,
        mean_batch=times.mean_batch,
        limiter=_KV if is_full else base.limiter,
    )  # fmt: skip


def _batch_answer(table: StepTable, target: Target, requests: RequestBatch, price: float) -> ServingAnswer:
    times = batch_times(requests, table)
    count = min(requests.sequences, requests.sequence_limit)
    step = StepBatch.of_decode(count, kv_count=count * (requests.input_tokens + requests.output_tokens // 2))
    prompt = StepBatch.of_prompt(requests.input_tokens)
    rate = requests.sequences * requests.output_tokens / times.latency_s
    base = _answer(table, target, ((1.0, step),), rate, price, requests.kv_tokens)
    return replace(
        base,
        load=f"batch of {requests.sequences}, {requests.input_tokens} in, {requests.output_tokens} out",
        ttft_s=_span(table, ((1.0, prompt),), times.prefill_s, table.rank.costs.queue_ratio),
        tpot_s=_span(table, ((1.0, step),), times.decode_step_s), latency_s=times.latency_s, mean_batch=float(count),
        limiter=_KV if times.round_count > 1 else base.limiter,
    )  # fmt: skip


def _offline_answer(
    table: StepTable, target: Target, tokens: tuple[int, int], kv_tokens: float, price: float
) -> ServingAnswer:
    costs, groups = table.rank.costs, table.rank.layout.attention_dp
    best = best_throughput(
        table, input_tokens=tokens[0], output_tokens=tokens[1], kv_tokens=kv_tokens,
        sequence_limit=costs.sequence_limit * groups, token_budget=costs.token_budget * groups,
        reserves_output=costs.reserves_output,
    )  # fmt: skip
    steps = steady_steps(best.sequences, *tokens)
    base = _answer(table, target, steps, best.output_tokens_per_s, price, kv_tokens)
    return replace(
        base,
        load=f"all requests at once, {tokens[0]} in, {tokens[1]} out", ttft_s=None,
        tpot_s=_span(table, steps, best.step_s), latency_s=best.step_s * tokens[1], mean_batch=float(best.sequences),
        limiter=_KV if best.is_memory_bound else base.limiter,
    )  # fmt: skip


def _answer(table: StepTable, target: Target, steps: Mix, rate: float, price: float, kv_tokens: float) -> ServingAnswer:
    """Return what answers of all loads share; parts are those of the steps' mean."""
    shape, layout, costs = table.rank
    kernels = sum(share * table.parts_s(step)[:, 0] for share, step in steps)
    parts = dict(zip(FAMILIES, kernels.tolist(), strict=True))
    parts["host"] = sum(share * table.seconds(step).host_s for share, step in steps)
    none = Span90(value=0.0, low=0.0, high=0.0)
    usd = price_per_million_tokens(layout.device_count, price, rate) if price else None
    return ServingAnswer(
        model=shape.name, target=target.name, device_count=layout.device_count, engine=costs.name, load="", ttft_s=None,
        tpot_s=none, latency_s=0.0, output_tokens_per_s=rate, mean_batch=0.0, kv_token_count=int(kv_tokens),
        limiter=max(parts, key=lambda name: parts[name]), parts_s=parts, usd_per_million_tokens=usd, trust={},
    )  # fmt: skip


def _span(table: StepTable, steps: Mix, value_s: float, ratio: float = 0.0) -> Span90:
    """Return a time with the interval that typical steps have, widened by what composition adds, or another ratio."""
    spread = math.log(ratio or table.rank.costs.composition_ratio)
    each = [(share, table.seconds(step)) for share, step in steps]
    time_s = sum(share * seconds.time_s for share, seconds in each)
    low = math.hypot(math.log(time_s / sum(share * seconds.low_s for share, seconds in each)), spread)
    high = math.hypot(math.log(sum(share * seconds.high_s for share, seconds in each) / time_s), spread)
    return Span90(value=value_s, low=value_s * math.exp(-low), high=value_s * math.exp(high))


def _stored(form: str) -> str:
    return "fp8" if form == "fp8_tensor" else form


@lru_cache(maxsize=256)
def _shape(name: str) -> TransformerShape:
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    return shape_of(name)


@lru_cache(maxsize=64)
def _kernel_times(target: "Same[Target]") -> KernelTimes:
    return kernel_times_of(target.held)


@lru_cache(maxsize=1024)
def _step_table(
    shape: TransformerShape, target: "Same[Target]", layout: ServingLayout, costs: EngineCosts
) -> StepTable:
    ratio = dict(costs.product_ratio).get(target.held.architecture, 1.0)
    return StepTable(Rank(shape, layout, costs), _kernel_times(target), ratio)


def _target(device: str | Target) -> Target:
    from nearpeak.targets import target_of

    return device if isinstance(device, Target) else target_of(device)


def trust_of(table: StepTable, target: Target, sequences: int, mean_keys: int) -> dict[int, float]:
    """Return the share of a decode step's kernels by steps from the data."""
    from nearpeak.prediction.case_prediction import predict_case

    rank, count = table.rank, max(1, sequences)
    rank_sequences = -(-count // rank.layout.attention_dp)
    times: dict[int, float] = {}
    for call in (*token_calls(rank, count), *decode_calls(rank, rank_sequences, rank_sequences * mean_keys)):
        kernel = predict_case(call.case, target)
        times[kernel.distance_count] = times.get(kernel.distance_count, 0.0) + call.times * kernel.time_s
    return {steps: time_s / sum(times.values()) for steps, time_s in sorted(times.items())}
