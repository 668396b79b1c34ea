"""Services at constant concurrency, of one batch, and with requests always waiting."""

from dataclasses import replace

import pytest

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError
from nearpeak.systems.serving.closed_loop import ClosedLoop, closed_loop_times
from nearpeak.systems.serving.engine_costs import EngineCosts
from nearpeak.systems.serving.host_fit import fitted_costs
from nearpeak.systems.serving.offline_throughput import best_throughput
from nearpeak.systems.serving.static_batch import RequestBatch, batch_times

LOOP = ClosedLoop(concurrency=4, input_tokens=100, output_tokens=20, requests_per_client=5)
ENGINE = Engine(policy="vllm", kv_block_count=10_000, step_token_count=8192, sequence_count=256)


def step_s(batch):
    return 1e-3 + 1e-5 * batch.prompt_tokens + 1e-7 * batch.decode_kv


def times_of(loop, engine=ENGINE, source=step_s):
    return closed_loop_times(loop, engine, loop.table(engine, source))


def test_one_client_waits_for_its_own_steps_alone():
    times = times_of(replace(LOOP, concurrency=1))
    assert times.ttft_s == pytest.approx(2e-3)
    assert times.tpot_s == pytest.approx(1e-3 + 1e-7 * 110, rel=1e-3)
    assert times.queued_share == 0


def test_little_holds_for_clients_without_a_pause():
    times = times_of(replace(LOOP, requests_per_client=50, output_spread=0.1))
    cycle_s = times.ttft_s + 19 * times.tpot_s
    assert 4 * 50 / times.duration_s * cycle_s == pytest.approx(4, rel=0.02)


def test_prompts_of_others_slow_decoding():
    alone = times_of(replace(LOOP, concurrency=1))
    many = times_of(replace(LOOP, concurrency=16, output_spread=0.1))
    assert many.tpot_s > 1.3 * alone.tpot_s


def test_a_small_cache_keeps_requests_waiting():
    loop = replace(LOOP, concurrency=16)
    small, large = (times_of(loop, replace(ENGINE, policy="tensorrt_llm", kv_block_count=count)) for count in (32, 999))
    assert small.ttft_s > 3 * large.ttft_s
    assert small.mean_batch <= 4
    assert small.queued_share > 0.5


def test_late_replies_delay_first_tokens():
    one = replace(LOOP, concurrency=1)
    assert times_of(one, replace(ENGINE, reply_delay_count=1)).ttft_s == pytest.approx(
        times_of(one).ttft_s + 1e-3, rel=0.1
    )


def test_prompts_that_wait_for_other_ranks_come_later_and_slow_decoding_less():
    loop = replace(LOOP, concurrency=16, input_tokens=1000, output_tokens=400, output_spread=0.2)
    ranks = replace(ENGINE, rank_count=4)
    plain, waiting = (times_of(loop, replace(ranks, rank_wait_step_count=steps)) for steps in (0, 60))
    assert waiting.ttft_s > plain.ttft_s + 5 * plain.tpot_s
    assert waiting.tpot_s < 0.9 * plain.tpot_s
    assert times_of(LOOP, replace(ENGINE, rank_wait_step_count=60)) == times_of(LOOP)


def test_a_cache_below_one_request_is_refused():
    with pytest.raises(SpecError, match="take 8 KV blocks; the cache has 7"):
        times_of(LOOP, replace(ENGINE, kv_block_count=7))


def test_a_batch_beyond_the_cache_runs_in_rounds():
    batch = RequestBatch(sequences=6, input_tokens=100, output_tokens=20)
    whole, split = batch_times(batch, step_s), batch_times(replace(batch, kv_tokens=500), step_s)
    assert (whole.round_count, split.round_count) == (1, 2)
    assert split.latency_s > 1.5 * whole.latency_s
    with pytest.raises(SpecError, match="one request needs 120"):
        batch_times(replace(batch, kv_tokens=100), step_s)


def test_prompts_of_a_batch_fill_the_budget_of_each_step():
    batch = RequestBatch(sequences=5, input_tokens=100, output_tokens=1, token_budget=200)
    assert batch_times(batch, step_s).latency_s == pytest.approx(3 * 1e-3 + 500e-5)


def test_throughput_ends_where_the_cache_is_full():
    options = {"input_tokens": 100, "output_tokens": 100, "sequence_limit": 1000, "token_budget": 100_000}
    small, large = (best_throughput(step_s, kv_tokens=kv, **options) for kv in (1500, 15_000))
    assert small.is_memory_bound
    assert small.sequences == 10
    assert large.output_tokens_per_s > small.output_tokens_per_s


def test_host_costs_are_found_again():
    start = EngineCosts(name="x", title="", host_step_s=0.0, host_sequence_s=0.0, host_call_s=0.0, source="")
    batches = (1, 8, 32, 64)

    def predicted(costs):
        return [0.01 + costs.host_step_s + count * costs.host_sequence_s for count in batches]

    truth = replace(start, host_step_s=2e-3, host_sequence_s=5e-5)
    fit = fitted_costs(start, predicted, predicted(truth), ("host_step_s", "host_sequence_s"))
    assert fit.host_step_s == pytest.approx(2e-3, rel=0.02)
    assert fit.host_sequence_s == pytest.approx(5e-5, rel=0.02)
    with pytest.raises(SpecError, match="host fit"):
        fitted_costs(start, predicted, [0.01], ("host_step_s", "host_sequence_s"))
