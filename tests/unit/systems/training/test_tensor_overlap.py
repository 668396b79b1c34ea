"""Tests of tensor-parallel collectives in pieces with constant rates."""

import pytest

from nearpeak.core.systems.duration import KernelDuration, Taken, TransferDuration
from nearpeak.core.systems.rank_program import RankCall, Transfer
from nearpeak.core.systems.stack import Stack
from nearpeak.ops import case
from nearpeak.systems.training.rank_lanes import Times, run_lanes
from nearpeak.systems.training.tensor_overlap import overlap_time, overlapped

PRODUCT = case("gemm", m=64, n=8, k=8, dtype="bf16")
GATHER = Transfer(kind="all_gather", bytes=6400, dim="tp")


def _kernel(case_, taken, start_s=0.0):
    time_s = start_s + dict(case_.axes)["m"] / 64 * (1.25 if taken.is_any else 1.0)
    return KernelDuration(time_s, time_s, time_s, time_s / 2, "gemm")


def _move(transfer, start_s=0.0, sm_count=0):
    time_s = start_s + transfer.bytes / 6400
    return TransferDuration(time_s, time_s, time_s, Taken(sm_count))


def test_kernels_beside_a_collective_have_what_it_leaves_of_memory():
    seen = []

    def kernel(case_, taken):
        seen.append(taken)
        return _kernel(case_, taken)

    def move(transfer):
        return _move(transfer)._replace(taken=Taken(memory_ratio=0.25))

    times = Times(kernel, move, Stack(name="mine", title="Mine", launch_s=0.0, source="test"))
    gradient = RankCall(name="gradient", transfer=Transfer(kind="all_reduce", bytes=6400, dim="dp"), is_beside=True)
    found = run_lanes([gradient, RankCall(name="product", case=PRODUCT)], times)
    assert Taken(memory_ratio=0.25) in seen
    assert found.time_s == pytest.approx(1 + 0.25 / 1.25)  # slowed while the collective runs
    assert found.exposed_s["dp"] == pytest.approx(found.time_s - 1)


def test_pieces_without_cost_hide_all_but_one_piece():
    assert overlap_time(PRODUCT, GATHER, _kernel, _move) == (pytest.approx(1 + 1 / 8), 8)


def test_starts_of_pieces_limit_their_number():
    time_s, count = overlap_time(PRODUCT, GATHER, lambda c, k: _kernel(c, k, 0.1), lambda t: _move(t, 0.1))
    assert count == 4
    assert time_s == pytest.approx(5 * 0.35)


def test_no_pieces_where_they_cost_more_than_they_hide():
    assert overlap_time(PRODUCT, GATHER, lambda c, k: _kernel(c, k, 9.0), _move)[1] == 1


def test_pairs_of_products_and_neighbouring_collectives():
    product = RankCall(name="product", case=PRODUCT)
    gather = RankCall(name="gather", transfer=GATHER)
    scatter = RankCall(name="scatter", transfer=Transfer(kind="reduce_scatter", bytes=64, dim="tp"))
    norm = RankCall(name="norm", case=case("rms_norm", rows=8, hidden=8, dtype="bf16"))
    kinds = [type(call).__name__ for call in overlapped([gather, product, norm, scatter, product, scatter])]
    assert kinds == ["OverlappedCall", "RankCall", "RankCall", "OverlappedCall"]


def test_lanes_expose_what_the_product_does_not_hide():
    times = Times(_kernel, _move, Stack(name="mine", title="Mine", launch_s=0.0, source="test"))
    calls = [RankCall(name="gather", transfer=GATHER), RankCall(name="product", case=PRODUCT)]
    lane = run_lanes(overlapped(calls), times)
    assert lane.time_s == pytest.approx(1.125)
    assert lane.exposed_s["tp"] == pytest.approx(0.125)
    assert run_lanes(calls, times).time_s == 2
