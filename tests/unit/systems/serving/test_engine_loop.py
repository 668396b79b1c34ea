"""The engine loop: skipping is exact, tokens and blocks are conserved, whatever the policy."""

from dataclasses import replace

import numpy as np
import pytest
from tests.sampling import sampled

from nearpeak.base.compilation import Kernel
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError
from nearpeak.systems.serving.latency_metrics import request_metric
from nearpeak.systems.serving.loads.arrival_process import closed_load, open_load
from nearpeak.systems.serving.policies import POLICIES
from nearpeak.systems.serving.request_columns import Requests
from nearpeak.systems.serving.serving_run import Autoscaling, serve
from nearpeak.systems.serving.step_grid import linear_grid, tabulate

from .random_runs import GRID, differences, random_run


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    """Small runs need no compiler; one test asks for it."""
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


@pytest.mark.parametrize("policy", POLICIES)
def test_steps_that_are_skipped_give_the_same_to_the_last_bit(policy):
    preempted = 0
    for seed in range(5):
        requests, engine, options = random_run(seed, policy=policy)
        fast = serve(requests, engine, GRID, **options)
        assert differences(fast, serve(requests, engine, GRID, skips=False, **options)) == [], seed
        preempted += int(fast.preempted_count.sum())
    assert preempted == 0 or POLICIES[policy].reservation != "output"
    assert preempted > 0 or POLICIES[policy].reservation != "step"


def test_machine_code_gives_the_same_to_the_last_bit(monkeypatch):
    pytest.importorskip("numba")
    runs = [random_run(seed) for seed in range(100, 110)]
    plain = [serve(requests, engine, GRID, **options) for requests, engine, options in runs]
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: False)
    for (requests, engine, options), before in zip(runs, plain, strict=True):
        assert differences(before, serve(requests, engine, GRID, **options)) == []


@pytest.mark.parametrize("seed", sampled(range(200, 240), 12))
def test_tokens_and_blocks_are_conserved(seed):
    requests, engine, options = random_run(seed)
    outcome = serve(requests, engine, GRID, **options)
    steps, ranks = outcome.steps, engine.rank_count
    assert (outcome.unused_block_count == engine.kv_block_count).all()
    assert steps.block_count.max() <= engine.kv_block_count * ranks
    assert steps.running_count.max() <= engine.sequence_count * ranks
    if options["has_cache"]:
        assert np.isnan(outcome.first_s).all()
    else:
        assert (outcome.first_s <= outcome.last_s).all()
        assert (outcome.scheduled_s < outcome.first_s).all()
    assert (outcome.queued_s <= outcome.scheduled_s).all()
    untouched = outcome.preempted_count.sum() == 0 and not options["has_cache"]
    if untouched:
        assert steps.prompt_count.sum() == (requests.input_count - outcome.reused_count).sum()
    if untouched and not engine.draft_token_count and not POLICIES[engine.policy].is_whole_batch:
        assert steps.decode_count.sum() == (requests.output_count - 1).sum()
    assert outcome.busy_s.sum() == pytest.approx(steps.duration_s.sum())
    cached = steps.kv_count <= steps.block_count * engine.block_token_count
    assert (cached | bool(outcome.reused_count.any())).all()  # shared blocks hold the tokens of many sequences


def test_a_run_by_hand():
    """Two requests, a step of 1 s and 0.1 s per token: [A 6], [A 1, B 5], [A 1, B 1]."""
    grid = linear_grid(fixed_s=1.0, token_s=0.1)
    requests = Requests(arrival_s=np.array([0, 0.5]), input_count=np.array([6, 5]), output_count=np.array([3, 2]))
    outcome = serve(requests, Engine(policy="vllm", kv_block_count=4, block_token_count=4), grid, is_logged=True)
    assert outcome.steps.duration_s.tolist() == pytest.approx([1.6, 1.6, 1.2])
    assert outcome.steps.block_count.tolist() == [2, 4, 4]
    assert request_metric(outcome, "ttft").tolist() == pytest.approx([1.6, 2.7])
    assert request_metric(outcome, "tpot").tolist() == pytest.approx([1.4, 1.2])
    assert request_metric(outcome, "latency").tolist() == pytest.approx([4.4, 3.9])


def test_a_prefix_is_computed_once_and_the_last_token_again():
    requests = Requests(
        arrival_s=np.array([0.0, 10, 20]), input_count=np.array([8, 8, 9]), output_count=np.array([1, 1, 1]),
        hash_token_count=4, hash_ids=np.array([0, 1, 0, 1, 0, 1, 2]), hash_starts=np.array([0, 2, 4, 7]),
    )  # fmt: skip
    engine = Engine(policy="vllm", kv_block_count=8, block_token_count=4)
    outcome = serve(requests, engine, linear_grid(fixed_s=1.0), is_logged=True)
    assert outcome.reused_count.tolist() == [0, 4, 8]
    assert outcome.steps.prompt_count.tolist() == [8, 4, 1]


def test_blocks_that_were_used_longest_ago_are_evicted_first():
    requests = Requests(
        arrival_s=np.arange(5) * 10.0, input_count=np.full(5, 4), output_count=np.ones(5, np.int64),
        hash_token_count=2, hash_ids=np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3]), hash_starts=np.arange(6) * 2,
    )  # fmt: skip
    engine = Engine(policy="vllm", kv_block_count=4, block_token_count=2)
    outcome = serve(requests, engine, linear_grid(fixed_s=1.0))
    assert outcome.reused_count.tolist() == [0, 0, 0, 0, 0]
    assert outcome.evicted_count.tolist() == [6]
    larger = serve(requests, Engine(policy="vllm", kv_block_count=6, block_token_count=2), linear_grid(fixed_s=1.0))
    assert larger.reused_count.tolist() == [0, 0, 0, 2, 2]


@pytest.mark.parametrize("policy", [name for name in POLICIES if POLICIES[name].reservation == "output"])
def test_requests_start_in_order_of_arrival_where_the_policy_promises_it(policy):
    load = open_load(50, 60, input_count=[10, 100, 300], output_count=[1, 50], seed=1)
    outcome = serve(load, Engine(policy=policy, kv_block_count=40, sequence_count=8), GRID)
    assert (np.diff(outcome.scheduled_s) >= 0).all()


def test_a_lower_class_waits_and_is_preempted_first():
    requests = Requests(
        arrival_s=np.zeros(3), input_count=np.full(3, 16), output_count=np.full(3, 40), classes=np.array([1, 0, 0])
    )
    outcome = serve(requests, Engine(policy="vllm", kv_block_count=6), GRID)
    assert outcome.preempted_count[0] > 0
    assert outcome.preempted_count[1] == 0
    assert outcome.last_s.argmax() == 0


def test_sglang_retracts_the_least_served_when_its_expectation_was_too_low():
    load = Requests(arrival_s=np.zeros(10), input_count=np.full(10, 20), output_count=np.full(10, 400))
    outcome = serve(load, Engine(policy="sglang", kv_block_count=1500, block_token_count=1), GRID, is_logged=True)
    assert outcome.preempted_count.sum() > 0
    assert not ((outcome.steps.prompt_count > 0) & (outcome.steps.decode_count > 0)).any()
    fixed = serve(load, Engine(policy="sglang", kv_block_count=1500, block_token_count=1), GRID, skips=False)
    assert fixed.last_s.tolist() == outcome.last_s.tolist()


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 60), (1.0, 15)])
def test_speculation_that_never_or_always_hits_gives_one_or_all_tokens_of_a_step(alpha, steps):
    load = Requests(arrival_s=np.zeros(1), input_count=np.array([8]), output_count=np.array([61]))
    engine = Engine(policy="vllm", kv_block_count=10, draft_token_count=3, acceptance_ratio=alpha)
    assert serve(load, engine, GRID).step_count.tolist() == [1 + steps]


def test_speculation_gives_the_tokens_of_its_formula():
    load = Requests(arrival_s=np.zeros(1), input_count=np.array([8]), output_count=np.array([20_001]))
    engine = Engine(policy="vllm", kv_block_count=1300, draft_token_count=3, acceptance_ratio=0.7)
    steps = int(serve(load, engine, GRID).step_count[0]) - 1
    assert 20_000 / steps == pytest.approx(engine.step_tokens_ratio, rel=0.02)


def test_adapters_beyond_the_limit_wait_and_absent_ones_are_loaded():
    requests = Requests(
        arrival_s=np.zeros(3), input_count=np.full(3, 10), output_count=np.full(3, 2), adapters=np.array([0, 1, 0])
    )
    engine = Engine(policy="vllm", kv_block_count=10, adapter_count=1, adapter_load_s=5.0)
    outcome = serve(requests, engine, linear_grid(fixed_s=1.0))
    assert outcome.first_s.tolist() == [6.0, 13.0, 6.0]  # the third passes the second, whose adapter has no place yet
    both = serve(requests, Engine(policy="vllm", kv_block_count=10, adapter_count=2, adapter_load_s=5.0), GRID)
    assert np.ptp(both.first_s) == 0


def test_a_source_for_all_ranks_answers_for_the_fullest():
    load = Requests(arrival_s=np.zeros(3), input_count=np.array([40, 10, 10]), output_count=np.ones(3, np.int64))
    grid = tabulate(
        lambda batch: 1.0 + 0.1 * batch.prompt_tokens, step_token_count=64, sequence_count=4, context_token_count=64,
        rank_count=2,
    )  # fmt: skip
    outcome = serve(load, Engine(policy="vllm", kv_block_count=10, rank_count=2), grid)
    assert outcome.first_s.tolist() == pytest.approx([1 + 0.1 * 2 * 50] * 3)


def test_what_ranks_compute_for_each_other_follows_the_tokens_of_all():
    """Prompts of 50 and 10 tokens: 0.1 s for each of a rank's own tokens, 0.02 s for each of all."""
    load = Requests(arrival_s=np.zeros(3), input_count=np.array([40, 10, 10]), output_count=np.ones(3, np.int64))
    grid = tabulate(
        lambda batch: 1.0 + (0.05 + 0.02) * batch.prompt_tokens, step_token_count=64, sequence_count=4,
        context_token_count=64, rank_count=2, shared_s=lambda tokens: 0.02 * tokens,
    )  # fmt: skip
    outcome = serve(load, Engine(policy="vllm", kv_block_count=10, rank_count=2), grid)
    assert outcome.first_s.tolist() == pytest.approx([1 + 0.1 * 50 + 0.02 * 60] * 3)


def balanced(wait, gather=0):
    """Steps of 1 s: prompts come to both ranks at once, to the first one at 5.5 s, and to the second at 7.5 s."""
    arrivals = np.array([0, 0, 5.5, 7.5])
    load = Requests(arrival_s=arrivals, input_count=np.full(4, 10), output_count=np.array([40, 40, 5, 5]))
    engine = Engine(policy="tensorrt_llm", kv_block_count=20, rank_count=2, rank_wait_step_count=wait,
                    rank_gather_step_count=gather)  # fmt: skip
    return serve(load, engine, linear_grid(fixed_s=1.0), is_logged=True).scheduled_s.tolist()


def test_prompts_wait_until_each_rank_has_one_or_a_round_of_steps_has_passed():
    assert balanced(0) == [0, 0, 6, 8]
    assert balanced(20) == [0, 0, 8, 8]
    assert balanced(7) == [0, 0, 7, 14]  # a step in 7 starts what there is, also for one rank
    assert balanced(20, gather=3) == [0, 0, 11, 11]


@pytest.mark.parametrize("seed", sampled(range(500, 540), 12))
def test_steps_that_are_skipped_while_prompts_wait_give_the_same_to_the_last_bit(seed):
    requests, engine, options = random_run(seed)
    waiting = replace(engine, rank_count=3, rank_wait_step_count=1 + seed % 9)
    fast = serve(requests, waiting, GRID, **options)
    assert differences(fast, serve(requests, waiting, GRID, skips=False, **options)) == []
    assert (fast.unused_block_count == engine.kv_block_count).all()


def test_ranks_that_step_together_take_the_time_of_the_slowest():
    load = Requests(arrival_s=np.zeros(2), input_count=np.array([100, 10]), output_count=np.ones(2, np.int64))
    grid = linear_grid(fixed_s=1.0, token_s=0.1)
    together = serve(load, Engine(policy="vllm", kv_block_count=10, rank_count=2), grid)
    assert together.first_s.tolist() == pytest.approx([11.0, 11.0])
    apart = serve(load, Engine(policy="vllm", kv_block_count=10), grid, replica_count=2)
    assert apart.first_s.tolist() == pytest.approx([11.0, 2.0])


def test_a_prefix_aware_router_sends_a_conversation_to_its_cache():
    ids = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    requests = Requests(
        arrival_s=np.array([0, 0.1, 20, 20.1]), input_count=np.full(4, 32), output_count=np.ones(4, np.int64),
        hash_token_count=16, hash_ids=ids, hash_starts=np.arange(5) * 2,
    )  # fmt: skip
    engine = Engine(policy="vllm", kv_block_count=100)
    outcome = serve(requests, engine, linear_grid(fixed_s=1.0), replica_count=2, router="prefix_aware")
    assert outcome.rank[2] == outcome.rank[0]
    assert outcome.rank[3] == outcome.rank[1]
    assert outcome.rank[0] != outcome.rank[1]
    assert outcome.reused_count.tolist() == [0, 0, 16, 16]


def test_replicas_start_under_load_and_are_paid_for_while_they_are_there():
    load = open_load(20, 200, input_count=10, output_count=50, seed=0)
    scaling = Autoscaling(most_count=4, request_count=4, start_s=1.0, hold_s=2.0)
    grid = linear_grid(fixed_s=0.02)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=100, sequence_count=8), grid, autoscaling=scaling)
    alone = serve(load, Engine(policy="vllm", kv_block_count=100, sequence_count=8), grid)
    assert len(set(outcome.rank.tolist())) > 1
    assert outcome.rented_s.sum() < 4 * outcome.end_s
    assert request_metric(outcome, "ttft").mean() < request_metric(alone, "ttft").mean() / 2


def test_a_closed_loop_keeps_its_number_in_flight():
    load = closed_load(6, 60, input_count=20, output_count=[5, 50], seed=2)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=100), GRID, is_logged=True)
    arrivals, ends = outcome.requests.arrival_s, np.sort(outcome.last_s)
    assert np.sort(arrivals)[6:].tolist() == ends[:54].tolist()
    moments = (ends[10:40] + ends[11:41]) / 2
    in_flight = (arrivals[:, None] <= moments).sum(0) - (outcome.last_s[:, None] <= moments).sum(0)
    assert (in_flight == 6).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context_token_count": 100}, "request 1 has 90 .* 20 tokens; the context holds 100"),
        ({"kv_block_count": 6}, "take 7 KV blocks; the cache has 6"),
        ({"step_token_count": 50, "is_chunked": False}, "needs 110 tokens in one step"),
        ({"policy": "orca"}, "no default of sequence_count"),
        ({"policy": "vlm"}, "did you mean vllm"),
    ],
)
def test_requests_that_can_never_be_served_are_refused_in_one_line(options, words):
    load = Requests(arrival_s=np.zeros(2), input_count=np.array([10, 90]), output_count=np.array([20, 20]))
    with pytest.raises(SpecError, match=words) as error:
        serve(load, Engine(**({"policy": "vllm", "kv_block_count": 100} | options)), GRID)
    assert "\n" not in str(error.value)


def test_clients_of_a_closed_loop_keep_all_replicas_busy():
    """Two replicas with half of the clients each do twice what one does with its half."""
    engine = Engine(policy="vllm", kv_block_count=2000, sequence_count=64)
    lengths = {"input_count": 64, "output_count": 40, "seed": 3}
    one = serve(closed_load(8, 80, **lengths), engine, GRID)
    two = serve(closed_load(16, 160, **lengths), engine, GRID, replica_count=2)
    assert two.end_s == pytest.approx(one.end_s, rel=0.02)
    assert two.step_count.tolist() == pytest.approx([one.step_count[0]] * 2, rel=0.05)
    assert (np.diff(two.requests.arrival_s) >= 0).all()
    in_flight = [
        ((two.requests.arrival_s <= moment) & (two.last_s > moment)).sum()
        for moment in np.linspace(0.01, two.requests.arrival_s[-1], 50)
    ]
    assert max(in_flight) == 16
