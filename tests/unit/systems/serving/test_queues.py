"""Queues that have an exact answer: the engine's waits, lengths and latencies meet it."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks._queue_formulas import decode_batch, mean_wait

from nearpeak.base.compilation import Kernel
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.errors import SpecError
from nearpeak.systems.serving.closed_loop import ClosedLoop, closed_loop_times
from nearpeak.systems.serving.disaggregation import CacheLink, Pool, serve_disaggregated
from nearpeak.systems.serving.latency_metrics import request_metric
from nearpeak.systems.serving.loads.arrival_process import closed_load, open_load
from nearpeak.systems.serving.log_comparison import logged_latencies
from nearpeak.systems.serving.request_columns import Requests
from nearpeak.systems.serving.run_timeline import step_spans, timeline
from nearpeak.systems.serving.serving_run import serve
from nearpeak.systems.serving.step_grid import linear_grid, tabulate

from .random_runs import GRID

SINGLE = Engine(policy="vllm", kv_block_count=10, sequence_count=1)


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_single_server_of_constant_steps_waits_as_the_recursion_says(load):
    requests = open_load(load, 3000, input_count=1, output_count=1, seed=3)
    waits = request_metric(serve(requests, SINGLE, linear_grid(fixed_s=1.0)), "queue")
    wait, exact = 0.0, []
    for gap in np.diff(requests.arrival_s, prepend=requests.arrival_s[0]):
        wait = max(0.0, wait + (1.0 if exact else 0.0) - gap)
        exact.append(wait)
    assert waits == pytest.approx(np.array(exact), abs=1e-6)
    assert waits.mean() == pytest.approx(mean_wait(load, 1.0), rel=0.35)  # a short run; benchmarks hold it to 2 %


def test_little_holds_within_one_percent():
    requests = open_load(20.0, 1500, input_count=[50, 400], output_count=[10, 200], seed=5)
    outcome = serve(requests, Engine(policy="vllm", kv_block_count=2000), GRID, is_logged=True)
    steps = outcome.steps
    number = ((steps.running_count + steps.waiting_count) * steps.duration_s).sum() / outcome.end_s
    assert number == pytest.approx(1500 / outcome.end_s * request_metric(outcome, "latency").mean(), rel=0.01)


def test_a_lone_request_takes_its_own_steps():
    requests = open_load(0.01, 5, input_count=700, output_count=20, cv=0.0, seed=0)
    outcome = serve(requests, Engine(policy="vllm", kv_block_count=100), GRID)
    prompt_s = GRID(StepBatch.of_prompt(700))
    decode_s = [GRID(StepBatch.of_decode(1, kv_count=700 + token)) for token in range(1, 20)]
    assert request_metric(outcome, "ttft") == pytest.approx(np.full(5, prompt_s))
    assert request_metric(outcome, "tpot") == pytest.approx(np.full(5, np.mean(decode_s)))


def test_a_steady_batch_is_the_fixed_point_of_its_step_time():
    requests = open_load(8.0, 1200, input_count=10, output_count=150, seed=4)
    grid = linear_grid(fixed_s=6e-3, sequence_s=3e-5)
    outcome = serve(requests, Engine(policy="vllm", kv_block_count=10_000), grid, is_logged=True)
    steps = outcome.steps
    span = outcome.requests.arrival_s[-1]
    inside = steps.start_s < span
    mean = (steps.decode_count * steps.duration_s)[inside].sum() / span
    assert mean == pytest.approx(decode_batch(8.0, 150, lambda batch: 6e-3 + 3e-5 * batch, limit=256), rel=0.06)


def test_a_closed_loop_has_the_throughput_of_its_latency():
    load = closed_load(8, 400, input_count=100, output_count=50, seed=1)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=1000), GRID)
    ttft, tpot = request_metric(outcome, "ttft").mean(), request_metric(outcome, "tpot").mean()
    assert 400 * 50 / outcome.end_s == pytest.approx(8 * 50 / (ttft + 49 * tpot), rel=0.02)


@pytest.mark.parametrize(("delay", "turnaround_s"), [(0, 0.0), (0, 0.01), (1, 0.01)])
def test_clients_in_step_wait_for_their_own_steps_alone(delay, turnaround_s):
    step_s, count = 0.01, 60
    engine = Engine(policy="vllm", kv_block_count=10_000, request_s=turnaround_s / 2, turnaround_s=turnaround_s / 2,
                    reply_delay_count=delay)  # fmt: skip
    loop = ClosedLoop(concurrency=16, input_tokens=100, output_tokens=count, requests_per_client=4)
    times = closed_loop_times(loop, engine, linear_grid(fixed_s=step_s))
    assert times.ttft_s == pytest.approx(turnaround_s / 2 + (1 + delay) * step_s)
    assert times.tpot_s == pytest.approx((count - 1 - delay) / (count - 1) * step_s)
    assert times.duration_s == pytest.approx(4 * (count * step_s + turnaround_s) - turnaround_s / 2)


def test_the_timeline_keeps_tokens_and_time():
    load = open_load(10.0, 100, input_count=[100, 500], output_count=[5, 60], seed=6)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=500), GRID, is_logged=True, replica_count=2)
    run = timeline(outcome, 50)
    width = np.diff(run.edges_s)
    assert (run.prompt_tokens_per_s * width).sum() == pytest.approx(load.input_count.sum())
    assert (run.output_tokens_per_s * width).sum() == pytest.approx((load.output_count - 1).sum())
    assert (run.busy_ratio * width).sum() == pytest.approx(outcome.busy_s.sum())
    spans = list(step_spans(outcome))
    assert len(spans) == outcome.step_count.sum()
    assert {span.rank for span in spans} == {0, 1}


def test_pools_behind_an_infinite_link_are_each_as_good_as_alone():
    load = open_load(10.0, 200, input_count=[100, 500], output_count=[5, 60], seed=6)
    engine = Engine(policy="vllm", kv_block_count=5000)
    link = CacheLink(kv_token_bytes=131_072, bandwidth_bytes_per_s=float("inf"))
    both = serve_disaggregated(load, Pool(engine=engine, table=GRID), Pool(engine=engine, table=GRID), link)
    prompts = Requests(arrival_s=load.arrival_s, input_count=load.input_count, output_count=np.ones(200, np.int64))
    first = serve(prompts, engine, GRID)
    assert both.requests.first_s.tolist() == first.first_s.tolist()
    assert not both.transfer_s.any()
    aggregated = serve(load, engine, GRID)
    assert request_metric(both.requests, "tpot").mean() < request_metric(aggregated, "tpot").mean()
    slow = CacheLink(kv_token_bytes=131_072, bandwidth_bytes_per_s=1e9, latency_s=1e-3)
    later = serve_disaggregated(load, Pool(engine=engine, table=GRID), Pool(engine=engine, table=GRID), slow)
    assert later.transfer_s.min() >= 100 * 131_072 / 1e9
    assert later.requests.last_s.mean() > both.requests.last_s.mean()


def test_layers_that_are_sent_early_hide_all_but_the_last():
    load = Requests(arrival_s=np.zeros(1), input_count=np.array([1000]), output_count=np.array([2]))
    pool = Pool(engine=Engine(policy="vllm", kv_block_count=100), table=linear_grid(fixed_s=1.0))
    link = CacheLink(kv_token_bytes=1e5, bandwidth_bytes_per_s=1e9, layer_count=10)
    assert serve_disaggregated(load, pool, pool, link).transfer_s.tolist() == pytest.approx([0.01])


def test_a_closed_loop_of_two_pools_keeps_its_number_in_flight():
    load = closed_load(4, 40, input_count=100, output_count=[2, 20], seed=3)
    pool = Pool(engine=Engine(policy="vllm", kv_block_count=100), table=GRID)
    outcome = serve_disaggregated(load, pool, pool, CacheLink(kv_token_bytes=1e5, bandwidth_bytes_per_s=1e10))
    ends = np.sort(outcome.requests.last_s)
    assert outcome.requests.requests.arrival_s[4:].tolist() == ends[:36].tolist()


def grid_errors(table, source, *, step_token_count, sequence_count, context_token_count, seed, count=200):
    """The relative errors of a table at random steps: decodes alone, prompts alone, and both."""
    generator = np.random.default_rng(seed)

    def drawn(last):
        return int(np.exp(generator.uniform(0, np.log(max(last, 2)))))

    errors = np.empty(count)
    for index in range(count):
        decodes, prompt = drawn(sequence_count), drawn(step_token_count)
        cache, prefix = drawn(context_token_count), drawn(context_token_count)
        batch = StepBatch.of_decode(decodes, kv_count=decodes * cache) if index % 3 != 1 else StepBatch()
        if index % 3:
            chunk = StepBatch.of_prompt(prompt, prefix_count=prefix)
            batch = batch._replace(prompt_tokens=prompt, prompt_pairs=chunk.prompt_pairs, prompt_sequences=1)
        errors[index] = table(batch) / source(batch) - 1
    return errors


def test_a_grid_meets_its_source_between_the_knots():
    def source(batch):
        return (
            5e-3
            + 1e-5 * (batch.prompt_tokens + batch.decode_tokens)
            + 3e-8 * batch.decode_kv
            + 1e-9 * batch.prompt_pairs
        )

    limits = {"step_token_count": 512, "sequence_count": 64, "context_token_count": 4096}
    errors = grid_errors(tabulate(source, **limits), source, seed=1, **limits)
    assert np.abs(errors).max() < 1e-9


def test_a_log_of_the_same_run_has_no_error_and_a_slower_one_as_much_as_it_is_slower():
    load = open_load(10.0, 100, input_count=[100, 500], output_count=[1, 60], seed=6)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=5000), GRID)
    with np.errstate(invalid="ignore"):
        tokens = (outcome.last_s - outcome.first_s) / (load.output_count - 1)
    log = {"ttft": outcome.first_s - load.arrival_s, "tpot": tokens, "latency": outcome.last_s - load.arrival_s}
    same = logged_latencies(outcome, log)
    assert [row.error_ratio for row in same] == [0.0] * 9
    assert {row.name: row.request_count for row in same} == {
        "ttft": 100, "tpot": int((load.output_count > 1).sum()), "latency": 100
    }  # fmt: skip
    slower = logged_latencies(outcome, {"ttft": 1.25 * log["ttft"]})
    assert [row.error_ratio for row in slower] == pytest.approx([-0.2] * 3)
    with pytest.raises(SpecError, match="99 values of ttft for 100 requests"):
        logged_latencies(outcome, {"ttft": log["ttft"][1:]})


def test_prefixes_are_shared_within_an_adapter_alone():
    count = 40
    load = Requests(
        arrival_s=np.arange(count) * 10.0, input_count=np.full(count, 64), output_count=np.full(count, 2),
        hash_token_count=16, hash_ids=np.tile(np.arange(4), count), hash_starts=np.arange(count + 1) * 4,
    )  # fmt: skip
    engine = Engine(policy="vllm", kv_block_count=100, adapter_count=4)
    shared, apart = (
        serve(replace(load, adapters=adapters), engine, GRID).reused_count
        for adapters in (None, np.arange(count) % 4 - 1)
    )
    assert (shared > 0).sum() == count - 1
    assert (apart > 0).sum() == count - 4
