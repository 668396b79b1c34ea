"""Synchronous rounds: the golden round, order statistics, deadlines, conservation and permutation laws."""

from dataclasses import replace

import numpy as np
import pytest

from nearpeak.core.federated.client_fleet import ClientCost, Fleet, group_of
from nearpeak.core.federated.round_rules import policy_of, server_of
from nearpeak.errors import SpecError
from nearpeak.systems.federated.client_columns import clients as columns
from nearpeak.systems.federated.client_columns import example
from nearpeak.systems.federated.policy_outcome import Federation, outcome_of, simulated_rounds
from nearpeak.systems.federated.round_clock import synchronous_rounds
from nearpeak.systems.federated.round_log import CAUSES, straggler_cause

RESNET_BYTES = 46_758_000
POLICIES = ("random", "fastest", "deadline=20s", "energy", "omnifedge")


def golden():
    return columns(*example(), model_bytes=RESNET_BYTES)


def unlike(seed, *, count=30, spread=0.3, presence=True):
    """Groups of unlike clients with random figures."""
    draw = np.random.default_rng(seed)
    groups, costs = [], {}
    for place in range(5):
        rate = float(draw.uniform(1e6, 2e7))
        group = replace(
            group_of(f"board{place}", sample_count=int(draw.integers(50, 500)), rate_bytes_per_s=rate),
            client_count=count // 5, spread_ratio=spread,
        )  # fmt: skip
        if presence and place % 2:
            group = replace(group, on_mean_s=200.0, off_mean_s=100.0)
        elif presence and place == 2:
            group = replace(group, presence_s=(300.0, 50.0))
        time_s = float(draw.uniform(1e-3, 3e-2))
        groups.append(group)
        costs[group.name] = ClientCost(
            sample_s=time_s, low_s=0.8 * time_s, high_s=1.5 * time_s, busy_w=float(draw.uniform(5, 20)), idle_w=2.0,
            source="drawn",
        )  # fmt: skip
    return Fleet(groups=tuple(groups), epoch_count=2), costs


def test_the_golden_round_is_exact():
    three = golden()
    assert three.round_s.round(3).tolist() == [9.881, 18.963, 45.406]
    log = synchronous_rounds(three, policy_of("random"), round_count=1, most=3)
    assert round(log.total_s, 3) == 45.406
    assert log.energy_j(three).round(2).tolist() == [251.03, 164.22, 114.81]
    assert round(log.energy_j(three).sum(), 2) == 530.06
    assert CAUSES[log.cause[0]] == "link"
    dropped = synchronous_rounds(three, policy_of("deadline=20s"), round_count=1, most=3)
    assert round(dropped.total_s, 3) == 18.963
    assert dropped.late_count.tolist() == [0, 0, 1]
    assert dropped.busy_s[2] > 0  # work for nothing still counts


@pytest.mark.parametrize("count", [1, 2, 8, 40])
def test_rounds_of_equal_random_clients_take_the_mean_of_the_slowest(count):
    fleet = Fleet(groups=(replace(group_of("board", rate_bytes_per_s=1e15), client_count=count),))
    costs = {"board": ClientCost(sample_s=0.02, low_s=0.02, high_s=0.02, busy_w=1.0, idle_w=1.0, source="")}
    same, draw, rounds = columns(fleet, costs, model_bytes=1), np.random.default_rng(3), 2000
    log = synchronous_rounds(
        same, policy_of("random"), round_count=rounds, most=count, factors=lambda _: draw.exponential(size=count)
    )  # fmt: skip
    harmonic = sum(1 / place for place in range(1, count + 1))
    deviation = 2.0 * sum(1 / place**2 for place in range(1, count + 1)) ** 0.5 / rounds**0.5
    assert abs(log.round_s.mean() - 2.0 * harmonic) < 4 * deviation


@pytest.mark.parametrize("words", POLICIES)
def test_energy_time_and_updates_are_conserved(words):
    many = columns(*unlike(1), model_bytes=RESNET_BYTES)
    log = synchronous_rounds(many, policy_of(words), round_count=60, most=7, seed=5)
    assert (log.asked_count == log.counted_count + log.late_count + log.lost_count).all()
    assert log.counted_count.tolist() == np.bincount(log.update_client, minlength=many.count).tolist()
    assert log.energy_j(many).sum() == pytest.approx((log.busy_s * many.busy_w + log.idle_s * many.idle_w).sum())
    assert (log.up_bytes == log.counted_count * RESNET_BYTES).all()
    taken_s = log.busy_s + log.idle_s
    assert (taken_s <= log.total_s * (1 + 1e-12)).all()
    assert log.update_at_s.max() <= log.total_s * (1 + 1e-12)


@pytest.mark.parametrize("words", POLICIES)
@pytest.mark.parametrize("server", ["sync", "async", "buffered=3"])
def test_the_order_of_clients_only_orders_the_output(words, server):
    if words == "omnifedge" and server != "sync":
        pytest.skip("needs all clients at once")
    fleet, costs = unlike(2)
    turned = replace(fleet, groups=fleet.groups[::-1])
    first, second = (
        simulated_rounds(Federation(one, costs, RESNET_BYTES, 20, 6), policy_of(words), server_of(server), seed=4)
        for one in (fleet, turned)
    )
    assert np.allclose(first.round_s, second.round_s)
    assert first.counted_count.reshape(5, -1).tolist() == second.counted_count.reshape(5, -1)[::-1].tolist()
    again = simulated_rounds(Federation(fleet, costs, RESNET_BYTES, 20, 6), policy_of(words), server_of(server), seed=4)
    assert again.round_s.tolist() == first.round_s.tolist()


def test_without_the_slowest_client_no_round_is_longer():
    fleet, costs = unlike(3, presence=False)
    whole = columns(fleet, costs, model_bytes=RESNET_BYTES)
    slowest = fleet.groups[int(whole.group[whole.round_s.argmax()])].name
    rest = replace(fleet, groups=tuple(group for group in fleet.groups if group.name != slowest))
    logs = [
        synchronous_rounds(columns(one, costs, model_bytes=RESNET_BYTES), policy_of("random"), round_count=40, most=99)
        for one in (fleet, rest)
    ]
    assert (logs[1].round_s <= logs[0].round_s).all()
    assert logs[1].total_s < logs[0].total_s


def test_a_client_that_leaves_does_not_count_but_its_energy_does():
    fleet, costs = example()
    leaves = fleet.changed("slow", lambda group: replace(group, presence_s=(30.0, 1e6)))
    three = columns(leaves, costs, model_bytes=RESNET_BYTES)
    log = synchronous_rounds(three, policy_of("random"), round_count=1, most=3)
    assert log.lost_count.tolist() == [0, 0, 1]
    assert log.total_s == 30.0
    assert log.busy_s[2] == pytest.approx(8.0)
    assert log.up_bytes[2] == 0


def test_nobody_present_is_waited_for():
    fleet, costs = example()
    late = replace(fleet, groups=tuple(replace(group, presence_s=(1.0, 99.0, 1000.0, 1.0)) for group in fleet.groups))
    log = synchronous_rounds(columns(late, costs, model_bytes=RESNET_BYTES), policy_of("random"), round_count=2, most=3)
    assert log.counted_count.tolist() == [1, 1, 1]
    assert log.total_s == pytest.approx(100.0 + 45.4064)


@pytest.mark.parametrize(("change", "cause"), [
    ({"sample_s": 9.0}, "compute"), ({"up_s": 99.0}, "link"), ({"sample_count": 60_000}, "data"),
])  # fmt: skip
def test_the_planted_cause_of_a_straggler_is_named(change, cause):
    fleet = Fleet(groups=(replace(group_of("board"), client_count=5),))
    costs = {"board": ClientCost(sample_s=0.02, low_s=0.02, high_s=0.02, busy_w=1.0, idle_w=1.0, source="")}
    same = columns(fleet, costs, model_bytes=10_000)
    ((name, value),) = change.items()
    column = getattr(same, name).copy()
    column[3] = value
    slow = replace(same, **{name: column})
    assert CAUSES[straggler_cause(slow, np.arange(5), 3, slow.compute_s[3])] == cause


def test_policies_prefer_what_they_say():
    fleet, costs = unlike(6, presence=False, spread=0.0)
    federation = Federation(fleet, costs, RESNET_BYTES, 30, 6)
    logs = {words: simulated_rounds(federation, policy_of(words), server_of("sync")) for words in POLICIES}
    one = outcome_of(federation, policy_of("fastest"), server_of("sync"), [logs["fastest"]], [logs["random"]])
    assert one.paired_ratio[0] < 1
    assert logs["fastest"].total_s == min(log.total_s for log in logs.values())
    assert one.low_s < one.round_mean_s < one.high_s
    assert logs["omnifedge"].estimate_s > 0
    assert logs["omnifedge"].counted_count.tolist() == [30] * 30


def test_energy_of_unknown_power_is_unknown_and_cannot_be_a_policy():
    fleet, costs = example()
    costs = {**costs, "slow": replace(costs["slow"], busy_w=None)}
    federation = Federation(fleet, costs, RESNET_BYTES, 2, 3)
    log = simulated_rounds(federation, policy_of("random"), server_of("sync"))
    assert outcome_of(federation, policy_of("random"), server_of("sync"), [log], [log]).round_j is None
    with pytest.raises(SpecError, match="power of a client is unknown"):
        simulated_rounds(federation, policy_of("energy"), server_of("sync"))
