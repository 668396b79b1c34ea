"""Goodput: golden closed forms, the simulation against them, policies compared, planted faults."""

import math
import random
from dataclasses import replace

import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.training.goodput.checkpoint_interval import (
    best_interval_s,
    complete_ratio,
    daly_interval_s,
    first_order_ratio,
    young_interval_s,
)
from nearpeak.systems.training.goodput.failure_model import (
    CheckpointCost,
    ElasticPolicy,
    FailureModel,
    PeerCheckpoint,
    SpotMarket,
    prior_failures,
    shrink_rates,
)
from nearpeak.systems.training.goodput.run_goodput import goodput_of

HOUR = 3600.0
GOLDEN = [  # C, R, M in hours, τ, first order, complete
    (60, 600, 3.1, 1157, 0.8425, 0.8527),
    (10, 120, 3.1, 472, 0.9469, 0.948),
    (60, 600, 7.9, 1847, 0.9139, 0.9169),
    (60, 600, 1.8, 882, 0.7713, 0.793),
]
SAVE = CheckpointCost(blocking_s=60)
OFTEN = FailureModel(failure_interval_s=3.1 * HOUR)


def simulated(save=SAVE, restart_s=600, failures=OFTEN, **options):
    return goodput_of(save, restart_s, failures=failures, run_count=300, **options)


@pytest.mark.parametrize(("save", "restart", "hours", "interval", "first", "complete"), GOLDEN)
def test_closed_forms_and_simulation_meet_the_golden_table(save, restart, hours, interval, first, complete):
    failure = hours * HOUR
    best = young_interval_s(save, failure)
    assert round(best) == interval
    assert round(first_order_ratio(best, save, restart, failure), 4) == first
    assert round(complete_ratio(best, save, restart, failure), 4) == complete
    report = simulated(CheckpointCost(blocking_s=save), restart, FailureModel(failure_interval_s=failure),
                       interval_s=best)  # fmt: skip
    assert report.goodput_ratio == pytest.approx(complete, abs=0.0015)
    assert report.shares["productive"].low < complete < report.shares["productive"].high


@pytest.mark.parametrize(("save", "failure"), [(60, 11_160), (1, 100), (30, 60), (500, 400), (0.01, 1e7)])
def test_the_best_interval_is_a_maximum_near_dalys(save, failure):
    best = best_interval_s(save, failure)
    assert all(complete_ratio(best, save, 0, failure) >= complete_ratio(best * by, save, 0, failure) - 1e-12
               for by in (0.9, 0.97, 1.03, 1.1))  # fmt: skip
    assert best == pytest.approx(daly_interval_s(save, failure), rel=0.06)


def test_shares_add_up_and_the_same_seed_gives_the_same_report():
    one, again, other = simulated(seed=1), simulated(seed=1), simulated(seed=2)
    assert sum(share.mean for share in one.shares.values()) == pytest.approx(1.0, abs=1e-9)
    assert one == again
    assert one != other
    assert all(share.low <= share.mean <= share.high or share.high == 0 for share in one.shares.values())


def test_without_failures_only_checkpoints_cost():
    report = simulated(failures=FailureModel(failure_interval_s=1e12), interval_s=940.0)
    assert report.goodput_ratio == pytest.approx(0.94, abs=1e-3)
    assert report.shares["rework"].mean == report.shares["restart"].mean == report.shares["idle"].mean == 0


def test_spares_and_shrinking_avoid_idle_time():
    broken = replace(OFTEN, repair_s=24 * HOUR)
    by_spares = [simulated(failures=broken, policy=ElasticPolicy(spare_count=count)) for count in (0, 4, 16)]
    productive = [report.goodput_ratio for report in by_spares]
    assert productive == sorted(productive)
    assert by_spares[0].shares["idle"].mean > 0.5
    assert by_spares[-1].shares["idle"].mean < 0.01
    shrunk = simulated(failures=broken, policy=ElasticPolicy(rates_ratio=shrink_rates(128, 64), reshape_s=120))
    assert shrunk.shares["idle"].mean == 0 < shrunk.shares["degraded"].mean < 0.1
    assert shrunk.goodput_ratio > by_spares[0].goodput_ratio


def test_degraded_time_is_what_missing_nodes_take():
    """One node is away for a share of the time that repair over repair and failure interval gives."""
    rare = FailureModel(failure_interval_s=48 * HOUR, hardware_ratio=1.0, repair_s=12 * HOUR)
    policy = ElasticPolicy(rates_ratio=(1.0, 0.5, 0.5, 0.5, 0.5))
    report = simulated(CheckpointCost(blocking_s=1e-3), 1e-3, rare, policy=policy, interval_s=60.0)
    away = 1 - math.exp(-12 / 48)
    assert report.shares["degraded"].mean == pytest.approx(0.5 * away, rel=0.05)


def test_peers_migration_and_background_saving_reduce_what_is_lost():
    plain = simulated()
    peer = ElasticPolicy(peer=PeerCheckpoint(interval_s=60, blocking_s=0.5, restart_s=200, loss_ratio=0.05))
    assert simulated(policy=peer).shares["rework"].mean < plain.shares["rework"].mean / 5
    lost = ElasticPolicy(peer=replace(peer.peer, loss_ratio=1.0))
    assert simulated(policy=lost).shares["rework"].mean == pytest.approx(plain.shares["rework"].mean, rel=0.05)
    foreseen = simulated(failures=replace(OFTEN, foreseen_ratio=1.0), policy=ElasticPolicy(migrate_s=60))
    assert foreseen.shares["rework"].mean == 0
    behind = simulated(CheckpointCost(blocking_s=5, background_s=120, contention_ratio=0.05))
    assert plain.goodput_ratio < behind.goodput_ratio < behind.complete_ratio, "late checkpoints cost rework"


def test_spot_prices_save_money_and_cost_time():
    market = SpotMarket(price_ratio=0.35, bid_ratio=10, sigma_ratio=0.3, reversion_s=6 * HOUR, notice_s=120)
    always = simulated(market=market)
    assert always.cost_ratio == pytest.approx(0.35 / always.goodput_ratio, rel=0.03)
    low = simulated(market=replace(market, bid_ratio=0.35))
    assert low.shares["idle"].mean > 0.2
    assert low.cost_ratio < always.cost_ratio
    taken = simulated(market=replace(market, notice_s=0, reclaim_interval_s=6 * HOUR, wait_s=600))
    assert taken.goodput_ratio < always.goodput_ratio


def test_no_policy_makes_a_share_negative_or_loses_time():
    draw = random.Random(5)
    for seed in range(25):
        interval = 10 ** draw.uniform(2, 5)
        peer = PeerCheckpoint(interval_s=10 ** draw.uniform(0, 3), blocking_s=draw.random(), restart_s=50,
                              loss_ratio=draw.random())  # fmt: skip
        policy = ElasticPolicy(spare_count=draw.randint(0, 2), rates_ratio=shrink_rates(draw.randint(1, 6)),
                               reshape_s=60, migrate_s=30, peer=draw.choice([None, peer]))  # fmt: skip
        market = SpotMarket(price_ratio=0.4, bid_ratio=0.5, sigma_ratio=draw.random(), reversion_s=2e4,
                            notice_s=draw.choice([0, 120]), reclaim_interval_s=interval, wait_s=600)  # fmt: skip
        failures = FailureModel(failure_interval_s=interval, spread_ratio=3, foreseen_ratio=draw.random(),
                                repair_s=interval * 3)  # fmt: skip
        save = CheckpointCost(blocking_s=10 ** draw.uniform(-1, 2), background_s=draw.choice([0, 300]),
                              contention_ratio=0.1)  # fmt: skip
        report = goodput_of(save, 10 ** draw.uniform(0, 3), failures=failures, policy=policy,
                            market=draw.choice([None, market]), horizon_s=30 * interval, run_count=30, seed=seed,
                            interval_s=10 ** draw.uniform(1, 4))  # fmt: skip
        assert sum(share.mean for share in report.shares.values()) == pytest.approx(1.0, abs=1e-6)
        assert all(share.low > -1e-9 for share in report.shares.values())


def test_the_prior_is_that_of_the_llama_3_report():
    prior = prior_failures(16_384)
    assert prior.failure_interval_s / HOUR == pytest.approx(54 * 24 / 419, rel=0.01)
    report = goodput_of(SAVE, 600, device_count=16_384, run_count=300)
    wide, narrow = report.shares["productive"], simulated().shares["productive"]
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_planted_faults_leave_the_golden_table():
    """A restart without failures of its own, work lost by half an interval more, hours for seconds."""
    right = complete_ratio(882, 60, 600, 1.8 * HOUR)
    assert 1 / math.expm1((882 + 60) / (1.8 * HOUR)) * 882 / (1.8 * HOUR + 600) > right + 0.002
    assert (
        simulated(failures=FailureModel(failure_interval_s=1.8 * HOUR), interval_s=882.0).goodput_ratio < right + 0.002
    )
    assert complete_ratio(882, 60, 600, 1.8) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: goodput_of(SAVE, 600), "either device_count"),
        (lambda: goodput_of(SAVE, 600, device_count=8, failures=OFTEN), "either device_count"),
        (lambda: goodput_of(SAVE, 600, failures=FailureModel(failure_interval_s=1)), "give a horizon of at most"),
        (lambda: goodput_of(SAVE, 600, failures=FailureModel(failure_interval_s=2), horizon_s=60), "no run of 60 s"),
        (lambda: goodput_of(SAVE, -1, device_count=8), "restart_s must be at least 0"),
        (lambda: CheckpointCost(blocking_s=0), "must be above 0"),
        (lambda: FailureModel(failure_interval_s=1, hardware_ratio=2), "shares from 0 to 1"),
        (lambda: ElasticPolicy(rates_ratio=(0.5, 1.0)), "must fall"),
        (lambda: shrink_rates(4, 5), "no size to shrink to"),
        (lambda: young_interval_s(0, 1), "must be above 0"),
        (lambda: prior_failures(0), "at least 1"),
    ],
)
def test_values_that_cannot_be_are_one_line(call, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        call()
    assert words in str(error.value)
