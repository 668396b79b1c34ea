"""Tests of the lanes of a rank with constant durations."""

from dataclasses import replace

import pytest
from tests.unit.systems.training.constant_times import move, product, times

from nearpeak.systems.training.rank_lanes import run_lanes


def _sum(lane) -> float:
    return lane.kernel_s + lane.host_s + sum(lane.exposed_s.values())


def test_kernels_without_host_time_follow_each_other():
    lane = run_lanes([product(3), product()], times())
    assert lane.time_s == lane.kernel_s == 4
    assert lane.bound_s == 2
    assert lane.host_s == 0


def test_slow_host_decides_and_the_last_kernel_ends_after_its_launch():
    lane = run_lanes([product(3)], times(launch_s=2.0))
    assert lane.time_s == 7  # three launches, then the last kernel
    assert lane.host_s == 4
    assert lane.launch_s == 6


def test_fast_host_delays_the_first_kernel_only():
    assert run_lanes([product(4)], times(launch_s=0.25)).time_s == 4.25


def test_step_by_step_is_more_than_the_maximum_of_sums():
    """Small kernels wait for the host; what comes after them cannot make up for it."""
    calls = [product(4, kernel_count=3), product(4)]
    lane = run_lanes(calls, times(kernel_s=1.0, launch_s=1.0, further_launch_s=0.5))
    assert lane.time_s > max(lane.kernel_s, lane.launch_s)


def test_gradients_are_launched_faster_than_recomputed_calls():
    again = replace(product(2), name="recomputed.product")
    given = times(kernel_s=0.1, launch_s=2.0, backward_ratio=0.5)
    assert run_lanes([again, product(2)], given, is_backward=True).launch_s == 4 + 2
    assert run_lanes([product(4)], given).launch_s == 8


def test_further_kernels_of_a_call_cost_the_launch_alone():
    assert run_lanes([product(2, kernel_count=3)], times(0.1, launch_s=2.0, further_launch_s=0.5)).launch_s == 6


def test_captured_graph_is_launched_once():
    lane = run_lanes([product(5)], times(launch_s=3.0, is_captured=True, graph_launch_s=0.5))
    assert lane.time_s == 5.5
    assert lane.host_s == 0.5


def test_collective_in_the_queue_is_exposed():
    lane = run_lanes([product(), move(), product()], times())
    assert lane.time_s == 3
    assert lane.exposed_s == {"tp": 1}


def test_gathers_beside_the_queue_are_prefetched_by_one_unit():
    unit = [move("all_gather", "dp", is_beside=True), product(2)]
    lane = run_lanes(unit * 3, times(transfer_s=1.5))
    # The first gather is exposed; each later one runs under the two kernels of the unit before it.
    assert lane.time_s == 1.5 + 6
    assert lane.exposed_s == {"dp": 1.5}


def test_gathers_longer_than_their_unit_are_exposed_by_the_difference():
    unit = [move("all_gather", "dp", is_beside=True), product(2)]
    assert run_lanes(unit * 3, times(transfer_s=3.0)).time_s == 3 + 2 + 1 + 2 + 1 + 2


def test_prefetched_gathers_go_ahead_of_the_reductions_of_the_unit_before():
    unit = [move("all_gather", "dp", is_beside=True), *[product()] * 6, move("reduce_scatter", "dp", is_beside=True)]
    lane = run_lanes(unit * 4, times(transfer_s=2.0))
    # Six kernels a unit hide a gather and a reduction; the first gather and the last reduction are left.
    assert lane.time_s == 2 + 24
    assert lane.tail_s == 2


def test_collectives_that_take_longer_than_the_kernels_decide():
    unit = [move("all_gather", "dp", is_beside=True), product(), move("reduce_scatter", "dp", is_beside=True)]
    lane = run_lanes(unit * 8, times(transfer_s=2.0))
    assert lane.time_s + lane.tail_s >= 16 * 2


def test_reductions_beside_the_queue_leave_a_tail():
    lane = run_lanes([product(), move("reduce_scatter", "dp", is_beside=True), product()], times(transfer_s=3.0))
    assert lane.time_s == 2
    assert lane.tail_s == 2


def test_kernels_beside_a_collective_run_on_the_rest_of_the_device():
    lane = run_lanes(
        [move("reduce_scatter", "dp", is_beside=True), product(), product()], times(transfer_s=2.0, sm_count=16)
    )
    assert lane.time_s == 3  # one kernel at half speed during the collective, one alone
    assert lane.exposed_s == {"dp": 1}


def test_hops_of_activations_share_a_tier_with_reductions_and_do_not_queue_behind_them():
    hop = replace(product(), name="attention.hop")
    calls = [move("reduce_scatter", "dp", is_beside=True), move("send", "cp", is_beside=True), hop]
    slow = times(1.0, 8.0)
    given = slow._replace(transfer=lambda one: slow.transfer(one)._replace(time_s=8.0 if one.dim == "dp" else 0.25))
    lane = run_lanes(calls, given)
    assert lane.exposed_s == {"cp": 0.5}  # at half rate
    assert lane.time_s == 1.5
    assert lane.tail_s == pytest.approx(8.0 + 0.25 - 1.5)


@pytest.mark.parametrize("launch_s", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("sm_count", [0, 8])
def test_parts_add_up_to_the_time(launch_s, sm_count):
    calls = [
        move("all_gather", "dp", is_beside=True), product(2), move(), product(kernel_count=3),
        move("reduce_scatter", "dp", is_beside=True), product(4),
    ]  # fmt: skip
    lane = run_lanes(calls * 2, times(1.0, 1.7, sm_count, launch_s=launch_s))
    assert lane.time_s == pytest.approx(_sum(lane), rel=1e-12)


def test_scaled_and_joined_sums_are_those_of_repeated_runs():
    one = run_lanes([product(2), move()], times(launch_s=0.5))
    assert one.scaled(2).time_s == one.joined(one).time_s
    assert one.joined(one).families["gemm"].time_s == 4


def test_a_host_that_reads_a_result_launches_what_follows_late():
    calls = [product(4), product(), product()]
    ahead = run_lanes(calls, times(launch_s=0.5))
    read = run_lanes([replace(calls[0], is_read=True), *calls[1:]], times(launch_s=0.5))
    assert ahead.time_s == 0.5 + 6
    assert read.time_s == 0.5 + 4 + 0.5 + 2
    assert _sum(read) == read.time_s
