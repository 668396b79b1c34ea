"""Capacity within limits, its interval and its limiter; price and energy of tokens."""

import pytest

from nearpeak.base.compilation import Kernel
from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError
from nearpeak.systems.serving import latency_metrics, serving_cost
from nearpeak.systems.serving.latency_metrics import Limits, goodput, steady, summary, throughput, whole
from nearpeak.systems.serving.loads.arrival_process import closed_load, open_load
from nearpeak.systems.serving.serving_capacity import bound_resource, capacity
from nearpeak.systems.serving.serving_run import serve
from nearpeak.systems.serving.step_grid import linear_grid

from .random_runs import GRID


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


def runner(engine, grid=GRID, count=150, **lengths):
    lengths = {"input_count": 100, "output_count": 30} | lengths
    return lambda rate, seed: serve(open_load(rate, count, seed=seed, **lengths), engine, grid, is_logged=True)


def test_the_capacity_of_a_single_server_lies_below_its_service_rate():
    run = runner(Engine(policy="vllm", kv_block_count=10, sequence_count=1), linear_grid(fixed_s=1.0), 200,
                 input_count=1, output_count=1)  # fmt: skip
    answer = capacity(
        run, Limits(latency_s=6.0), low_per_s=0.1, high_per_s=3, seeds=range(3), share=0.9, tolerance_ratio=0.05
    )
    assert 0.7 < answer.rate_per_s < 1.0
    assert answer.low_per_s < answer.rate_per_s < answer.high_per_s
    assert answer.reached_s["latency"] <= 6.0
    assert "limited by latency" in answer.line()


def test_a_tighter_limit_never_raises_the_capacity():
    run = runner(Engine(policy="vllm", kv_block_count=400))
    rates = [
        capacity(run, Limits(tpot_s=limit), low_per_s=0.5, high_per_s=200, seeds=(1,), tolerance_ratio=0.05).rate_per_s
        for limit in (0.02, 0.012, 0.009)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


def test_the_tail_over_all_seeds_meets_the_limit_at_the_rate_found_and_not_at_the_next():
    run = runner(Engine(policy="vllm", kv_block_count=400), count=60)
    limits, seeds = Limits(ttft_s=0.05, tpot_s=0.012), (1, 2)
    answer = capacity(run, limits, low_per_s=0.5, high_per_s=200, seeds=seeds, tolerance_ratio=0.03)
    assert answer.rate_per_s == answer.tried_per_s == float(f"{answer.rate_per_s:.3g}")
    shown = summary(*(run(answer.rate_per_s, seed) for seed in seeds))
    assert {name: shown[name]["p99"] for name in ("ttft", "tpot")} == answer.reached_s
    assert summary(*answer.outcomes) == shown
    assert all(answer.reached_s[name] <= limit for name, limit in limits.items())
    beyond = summary(*(run(1.04 * answer.rate_per_s, seed) for seed in seeds))
    assert any(beyond[name]["p99"] > limit for name, limit in limits.items())


def test_one_seed_tells_no_interval():
    answer = capacity(runner(Engine(policy="vllm", kv_block_count=400)), Limits(tpot_s=0.012), low_per_s=0.5,
                      high_per_s=200, seeds=(1,), tolerance_ratio=0.05)  # fmt: skip
    assert answer.low_per_s == answer.rate_per_s == answer.high_per_s


def test_limits_that_no_rate_meets_say_what_was_reached_and_what_binds():
    answer = capacity(runner(Engine(policy="vllm", kv_block_count=400)), Limits(tpot_s=1e-3, ttft_s=9), low_per_s=0.5,
                      high_per_s=10, seeds=(1,))  # fmt: skip
    assert answer.rate_per_s == 0
    assert answer.line().startswith("no rate meets the limits: at best ttft p99 ")
    assert answer.line().endswith("limited by tpot, by the time of steps")


@pytest.mark.parametrize(
    ("blocks", "sequences", "resource"),
    [(40, 200, "KV memory"), (4000, 4, "the limit of sequences"), (4000, 200, "the time of steps")],
)
def test_the_resource_that_holds_requests_up_is_named(blocks, sequences, resource):
    load = closed_load(60, 200, input_count=100, output_count=50, seed=0)
    engine = Engine(policy="vllm", kv_block_count=blocks, sequence_count=sequences)
    assert bound_resource(serve(load, engine, GRID, is_logged=True)) == resource


def test_the_ramp_of_a_closed_loop_is_left_out():
    load = closed_load(30, 200, input_count=500, output_count=50, seed=0)
    outcome = serve(load, Engine(policy="vllm", kv_block_count=2000), GRID, is_logged=True)
    part = steady(outcome, ramp_count=30)
    assert summary(outcome, window=lambda _: part)["ttft"]["mean"] < summary(outcome)["ttft"]["mean"]
    assert part.start_s > 0
    assert throughput(outcome, part)["output_tokens"] > throughput(outcome)["output_tokens"]
    assert set(summary(outcome)) <= set(latency_metrics.DEFINITIONS)
    with pytest.raises(SpecError, match="leaves none"):
        steady(outcome, ramp_count=200)


def test_goodput_counts_requests_that_meet_every_limit():
    outcome = runner(Engine(policy="vllm", kv_block_count=400))(20.0, 1)
    rate = throughput(outcome)["requests"]
    assert goodput(outcome, Limits(ttft_s=1e9)) == pytest.approx(rate)
    assert goodput(outcome, Limits(ttft_s=1e9, tpot_s=1e-9)) == 0
    assert whole(outcome).stop_s == outcome.end_s


def test_prices_and_energy_by_hand():
    price = serving_cost.price_per_million_tokens(8, 2.5, 2000, utilisation=0.6)
    assert price == pytest.approx(4.630, abs=5e-4)
    assert serving_cost.price_per_million_tokens(1, 87_072 / 24, 168e9 / 86_400) == pytest.approx(0.518, abs=5e-4)
    outcome = runner(Engine(policy="vllm", kv_block_count=400))(5.0, 1)
    idle_s = outcome.end_s - outcome.busy_s.sum()
    energy = serving_cost.run_energy_j(outcome, 700.0, idle_w=100.0, pue=1.2)
    assert energy == pytest.approx(1.2 * (700 * outcome.busy_s.sum() + 100 * idle_s))
    by_step = serving_cost.run_energy_j(outcome, lambda prompt, _decode, _kv: 700.0 + 0 * prompt, idle_w=100.0, pue=1.2)
    assert by_step == pytest.approx(energy)
