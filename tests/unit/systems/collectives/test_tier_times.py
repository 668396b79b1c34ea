"""Oracles of collective times: bytes, monotonicity, permutations, limits of one tier, and mutants that they catch."""

import random
from dataclasses import replace
from math import log

import pytest

from nearpeak.core.systems.collective_time import InnerTime
from nearpeak.core.systems.fabric import Fabric, Tier
from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import COLLECTIVES, Transfer
from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.systems.collectives import tier_times
from nearpeak.systems.collectives.group_placement import place_group, place_neighbours, place_ranks
from nearpeak.systems.collectives.tier_times import collective_time, straggler_wait_s, transfer_time
from nearpeak.systems.collectives.traffic import compulsory_bytes, exchanged_bytes, ring_bytes, ring_steps
from nearpeak.systems.collectives.traffic_bound import traffic_bound
from nearpeak.targets.clusters import cluster_of

RINGED = ("all_reduce", "all_gather", "reduce_scatter")
NODES = cluster_of("64xh100_sxm", "ib400").fabric


def fabric(node=8, inner=400e9, outer=50e9, latency=3e-6, **rest):
    """A node tier and a network."""
    return Fabric(
        name="test", title="Test",
        tiers=(
            Tier(name="node", device_count=node, bandwidth_bytes_per_s=inner, latency_s=1e-6, source="test"),
            Tier(name="net", device_count=0, bandwidth_bytes_per_s=outer, latency_s=latency, source="test", **rest),
        ),
    )  # fmt: skip


def constant(kind, size_bytes, rank_count):
    """A node that starts in 10 us and moves ring bytes at 300 GB/s."""
    time_s = 10e-6 + ring_bytes(kind, size_bytes, rank_count) / 300e9
    return InnerTime(time_s, time_s, time_s, "constant")


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_scattering_and_gathering_move_what_reducing_does(count):
    both = ring_bytes("reduce_scatter", 1e6, count) + ring_bytes("all_gather", 1e6, count)
    assert both == pytest.approx(ring_bytes("all_reduce", 1e6, count)) == pytest.approx(2 * (count - 1) / count * 1e6)
    steps = ring_steps("reduce_scatter", count) + ring_steps("all_gather", count)
    assert steps == ring_steps("all_reduce", count)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_group_of_one_takes_no_time_and_no_bytes(kind):
    assert ring_bytes(kind, 1e9, 1) == ring_steps(kind, 1) == 0
    assert compulsory_bytes(kind, 1e9, 1, 1, 1, switches_add=False) == 0
    found = transfer_time(Transfer(kind=kind, bytes=10**9, dim="dp"), Mesh(dims=(("tp", 8), ("dp", 1))), NODES)
    assert (found.time_s, found.high_s, found.bound_s, found.parts) == (0, 0, 0, ())


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_parts_add_up_above_the_bound_and_inside_the_interval(kind):
    rng = random.Random(kind)
    for _ in range(60):
        ranks = rng.sample(range(64), 2 if kind == "send" else rng.choice([2, 4, 8, 24, 64]))
        found = collective_time(kind, 10 ** rng.uniform(1, 10), place_ranks(ranks, NODES), constant)
        assert sum(part.time_s for part in found.parts) == pytest.approx(found.time_s, rel=1e-12)
        assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
        assert all(part.ground for part in found.parts)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_better_links_are_never_slower(kind):
    rng = random.Random(kind)
    for _ in range(40):
        node = rng.choice([2, 4, 8])
        slow = fabric(
            node=node, outer=10 ** rng.uniform(9, 11), latency=10 ** rng.uniform(-6, -4),
            shared_by=rng.choice([1, node]), oversubscription=rng.choice([1.0, 3.0]), reached_ratio=0.9,
        )  # fmt: skip
        ranks = rng.sample(range(node * 4), 2 if kind == "send" else rng.randint(2, node * 4))
        size = 10 ** rng.uniform(1, 10)
        before = collective_time(kind, size, place_ranks(ranks, slow), constant)
        for change in (
            {"bandwidth_bytes_per_s": slow.tiers[1].bandwidth_bytes_per_s * 2},
            {"latency_s": slow.tiers[1].latency_s / 2}, {"oversubscription": 1.0}, {"shared_by": 1}, {"reduces": True},
            {"reached_ratio": 1.0},
        ):  # fmt: skip
            fast = replace(slow, tiers=(slow.tiers[0], replace(slow.tiers[1], **change)))
            after = collective_time(kind, size, place_ranks(ranks, fast), constant)
            assert after.time_s <= before.time_s * (1 + 1e-12), change
        assert collective_time(kind, 2 * size, place_ranks(ranks, slow), constant).time_s >= before.time_s


def test_numbers_of_ranks_inside_nodes_and_of_nodes_do_not_matter():
    rng = random.Random(1)
    for _ in range(30):
        ranks = rng.sample(range(64), 16)
        nodes, slots = rng.sample(range(8), 8), rng.sample(range(8), 8)
        moved = [nodes[rank // 8] * 8 + slots[rank % 8] for rank in rng.sample(ranks, 16)]
        for kind in ("all_reduce", "all_to_all"):
            first, second = (
                collective_time(kind, 1e7, place_ranks(group, NODES), constant) for group in (ranks, moved)
            )
            assert first == second


def test_a_group_inside_a_node_takes_the_node_s_time():
    placement = place_ranks(range(8, 16), NODES)
    found = collective_time("all_reduce", 1e8, placement, constant)
    assert (found.time_s, found.tier, found.algorithm) == (constant("all_reduce", 1e8, 8).time_s, "nvlink", "")


@pytest.mark.parametrize("kind", RINGED)
def test_large_messages_run_at_the_rate_of_the_slowest_tier(kind):
    size = 1e12
    slow = collective_time(kind, size, place_ranks(range(32), fabric(outer=10e9)), constant)
    assert slow.limiter == "net"
    assert slow.time_s == pytest.approx(ring_bytes(kind, size, 32) / (8 * 10e9), rel=1e-3)
    fast = collective_time(kind, size, place_ranks(range(32), fabric(outer=500e9)), constant)
    assert fast.limiter == "node"
    assert fast.time_s == pytest.approx(ring_bytes(kind, size, 32) / 300e9, rel=1e-3)


def test_two_nodes_exchange_a_tree_s_message_once():
    chains = fabric(outer=10e9)
    switched = replace(chains, tiers=(replace(chains.tiers[0], reduces=True), chains.tiers[1]))
    found = collective_time("all_reduce", 1e12, place_ranks(range(16), switched), constant)
    assert found.algorithm == "tree Simple"
    assert found.time_s == pytest.approx(1e12 / (8 * 10e9 * 0.9), rel=1e-3)
    # Without switches that add up inside nodes, libraries hold chains and trees for slower than that.
    assert collective_time("all_reduce", 1e12, place_ranks(range(16), chains), constant).time_s > found.time_s


def test_exchanges_leave_over_the_link_of_each_device():
    found = collective_time("all_to_all", 1e10, place_ranks(range(32), fabric(outer=10e9)), constant)
    assert found.time_s == pytest.approx(exchanged_bytes(1e10, 32, 8) / 10e9, rel=1e-2)


def test_groups_that_run_at_the_same_time_share_a_node_s_links():
    mesh = Mesh(dims=(("tp", 8), ("dp", 4)))
    transfer = Transfer(kind="all_gather", bytes=10**11, dim="dp")
    own = transfer_time(transfer, mesh, fabric(outer=10e9), constant)
    shared = transfer_time(transfer, mesh, fabric(outer=10e9, shared_by=8), constant)
    assert shared.time_s == pytest.approx(8 * own.time_s, rel=1e-2)
    alone = collective_time("all_gather", 1e11, place_ranks([0, 8, 16, 24], fabric(outer=10e9, shared_by=8)), constant)
    assert alone.time_s == pytest.approx(own.time_s, rel=1e-2)


def test_oversubscription_divides_a_tier_and_switches_that_add_halve_the_bytes():
    placement = place_ranks(range(0, 256, 8), fabric())
    plain = collective_time("all_reduce", 1e11, placement, constant)
    over = collective_time("all_reduce", 1e11, place_ranks(range(0, 256, 8), fabric(oversubscription=4.0)), constant)
    assert over.time_s == pytest.approx(4 * plain.time_s, rel=1e-2)
    added = collective_time("all_reduce", 1e11, place_ranks(range(0, 256, 8), fabric(reduces=True)), constant)
    assert added.algorithm.startswith("switch")
    assert 0.5 < added.time_s / plain.time_s < 0.6


def test_bounds_name_the_border_that_sets_them():
    placement = place_ranks(range(64), NODES)
    found = traffic_bound("all_gather", 64e9, placement, device_bytes_per_s=500e9)
    assert (found.tier, found.time_s) == ("ib", pytest.approx(56e9 / (8 * 50e9)))
    inside = traffic_bound("all_gather", 64e9, place_ranks(range(8), NODES), device_bytes_per_s=500e9)
    assert (inside.tier, inside.time_s) == ("nvlink", pytest.approx(56e9 / 500e9))
    assert traffic_bound("all_gather", 64e9, place_ranks(range(8), NODES)).time_s == 0


def test_placements_of_dimensions():
    mesh = Mesh(dims=(("tp", 4), ("cp", 2), ("dp", 4), ("pp", 2)))
    counts = {dim: place_group(mesh, dim, NODES).inner_rank_count for dim in ("tp", "cp", "dp", "pp")}
    assert counts == {"tp": 4, "cp": 2, "dp": 1, "pp": 1}
    assert place_group(mesh, "ep", NODES).rank_count == 1
    # Groups of three do not fill nodes of eight: the group that two nodes share counts.
    three = place_group(Mesh(dims=(("tp", 3), ("dp", 8))), "tp", NODES)
    assert (three.inner_rank_count, three.outer[0].part_count) == (1, 2)
    assert place_neighbours(Mesh(dims=(("pp", 16),)), "pp", NODES).outer
    assert not place_neighbours(Mesh(dims=(("pp", 8),)), "pp", NODES).outer


def test_a_rack_and_a_network_beyond_it():
    rack = cluster_of("288xgb200", "ib400").fabric
    inside = transfer_time(Transfer(kind="all_reduce", bytes=10**9, dim="dp"), Mesh(dims=(("dp", 72),)), rack)
    across = transfer_time(Transfer(kind="all_reduce", bytes=10**9, dim="dp"), Mesh(dims=(("dp", 288),)), rack)
    assert (inside.tier, across.tier) == ("nvlink", "ib")
    assert inside.time_s < across.time_s


def test_what_the_node_refuses_is_taken_from_documents():
    def refused(*_):
        raise NotModelledError("no table")

    found = collective_time("all_reduce", 1e9, place_ranks(range(8), NODES), refused)
    assert found == collective_time("all_reduce", 1e9, place_ranks(range(8), NODES))
    assert "nccl-tests" in found.parts[0].ground
    assert found.high_s > 1.5 * found.time_s


def test_waiting_for_the_last_of_many_is_a_part_below_the_square_root_law():
    placement = place_ranks(range(64), NODES)
    plain, spread = (collective_time("all_reduce", 1e6, placement, constant, spread_s=s) for s in (0.0, 1e-3))
    assert spread.time_s - plain.time_s == pytest.approx(straggler_wait_s(64, 1e-3))
    assert spread.parts[-1].name == "wait"
    for count in (2, 16, 1024, 10**6):
        assert 0 < straggler_wait_s(count, 1.0) < (2 * log(count)) ** 0.5


def test_strange_input_is_one_clear_line():
    for call in (
        lambda: collective_time("gather_all", 1, place_ranks([0, 1], NODES)),
        lambda: collective_time("all_reduce", -1, place_ranks([0, 1], NODES)),
        lambda: place_ranks([], NODES),
        lambda: place_ranks([1, 1], NODES),
        lambda: place_ranks([0, 9], cluster_of("8xh100_sxm").fabric),
    ):
        with pytest.raises((SpecError, UnknownNameError)) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_missing_share_of_the_own_part_is_noticed(monkeypatch):
    def whole(kind, size_bytes, rank_count):
        return (2.0 if kind == "all_reduce" else 1.0) * size_bytes

    monkeypatch.setattr(tier_times, "ring_bytes", whole)
    with pytest.raises(AssertionError):
        test_large_messages_run_at_the_rate_of_the_slowest_tier("all_gather")


def test_rows_for_several_experts_of_a_node_cross_the_network_once():
    fabric = cluster_of("16xh100_sxm", "ib_ndr").fabric
    mesh = Mesh(dims=(("ep", 16),))

    def wire(copies):
        found = transfer_time(Transfer(kind="all_to_all", bytes=2**30, dim="ep", copy_count=copies), mesh, fabric)
        assert found.low_s <= found.time_s <= found.high_s
        return next(part.time_s for part in found.parts if part.name == "wire")

    # Two nodes: half of the copies would leave each device; of eight copies one leaves but for 1 in 256 rows.
    assert wire(8) == pytest.approx(wire(1) * 2 * (1 - 2**-8) / 8)
    near = Transfer(kind="all_to_all", bytes=2**20, dim="ep")
    inside = Mesh(dims=(("ep", 8), ("dp", 2)))
    alone, several = (transfer_time(replace(near, copy_count=copies), inside, fabric).time_s for copies in (1, 8))
    assert alone == several
