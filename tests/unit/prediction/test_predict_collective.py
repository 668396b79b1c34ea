import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.errors import NotModelledError
from nearpeak.ops.movement.collective import KINDS

DEVICES = ("h100_sxm", "a100_pcie_80gb", "b200_sxm", "l40s", "h200_sxm", "mi300x")


@settings(max_examples=120, deadline=None)
@given(
    parts=st.integers(1, 2**28), ranks=st.integers(1, 8), kind=st.sampled_from(sorted(KINDS)),
    device=st.sampled_from(DEVICES), dtype=st.sampled_from(("bf16", "fp16", "fp32")),
)  # fmt: skip
def test_parts_add_up_and_the_bound_the_interval_and_the_time_stand_in_order(parts, ranks, kind, device, dtype):
    case = nearpeak.case("collective", elements=parts * ranks, ranks=ranks, kind=kind, dtype=dtype)
    found = nearpeak.predict(case, device)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s


def test_a_table_gives_exactly_what_single_cases_give():
    sizes = 8 * 2 ** np.arange(6, 28)
    ranks = np.resize([2, 4, 8], len(sizes))
    cases = nearpeak.case_table({"op": "collective", "dtype": "bf16", "elements": sizes, "ranks": ranks})
    table = nearpeak.predict(cases, "h100_sxm")
    for row, case in enumerate(cases.cases()):
        assert nearpeak.predict(case, "h100_sxm").time_s == pytest.approx(table.predicted_s[row], rel=1e-12)


def test_larger_messages_never_take_much_less_time():
    sizes = 4 * 2 ** np.arange(4, 28)
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        found = nearpeak.predict(
            {"op": "collective", "dtype": "fp16", "elements": sizes, "ranks": 4, "kind": kind}, "h100_sxm"
        ).predicted_s
        assert (found[1:] >= 0.97 * found[:-1]).all()


def reduced(device, ranks, **axes):
    case = nearpeak.case("collective", elements=2**20 * ranks, ranks=ranks, dtype="fp16", **axes)
    return nearpeak.predict(case, device)


@pytest.mark.parametrize("device", ["h100_sxm", "l40s", "gb200"])
def test_more_ranks_than_were_measured_are_farther_from_the_data_and_less_sure(device):
    found = {ranks: reduced(device, ranks) for ranks in (4, 8)}
    wide = {ranks: one.high_s / one.low_s for ranks, one in found.items()}
    assert found[8].distance_count == found[4].distance_count + 1
    assert wide[8] > 1.2 * wide[4]
    assert "ranks" in found[8].notes[0]
    assert found[4].notes == ()


def test_rows_of_a_table_have_the_intervals_of_single_cases_whatever_their_ranks():
    columns = {"ranks": [2, 4, 8, 16, 72], "elements": 2**12 * 144}
    cases = nearpeak.case_table({"op": "collective", "dtype": "fp16", **columns})
    table = nearpeak.predict(cases, "gb200")
    for row, case in enumerate(cases.cases()):
        one = nearpeak.predict(case, "gb200")
        assert (one.low_s, one.high_s) == pytest.approx((table.low_s[row], table.high_s[row]), rel=1e-12)
        assert one.distance_count == table.distance_count[row]


@pytest.mark.parametrize(("device", "most"), [("h100_sxm", 8), ("gb200", 72)])
def test_ranks_beyond_a_node_are_refused_in_one_line(device, most):
    assert reduced(device, most).time_s > 0
    with pytest.raises(NotModelledError, match=f"a node has {most}, and no document states the network"):
        reduced(device, 512)


def test_instances_of_a_gpu_reach_no_peers_but_copy_to_the_host():
    with pytest.raises(NotModelledError, match="reach no peers"):
        reduced("h100_sxm:1g.10gb", 2)
    assert reduced("h100_sxm:mps=50", 2).time_s > 0
    copy = nearpeak.case("transfer", elements=2**20, dtype="fp32", direction="h2d")
    assert nearpeak.predict(copy, "h100_sxm:1g.10gb").time_s > 0


def test_bridges_join_pairs_and_larger_groups_meet_over_the_host():
    def rate(ranks):
        case = nearpeak.case("collective", elements=2**28, ranks=ranks, dtype="fp16")
        return 2**28 / nearpeak.predict(case, "a100_pcie_80gb").time_s

    assert rate(2) > 4 * rate(4)


def bus_bytes_per_s(device, ranks, kind="all_reduce"):
    case = nearpeak.case("collective", elements=2**28, ranks=ranks, dtype="fp16", kind=kind)
    sent = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks * 2**29
    return sent / nearpeak.predict(case, device).time_s


def test_switches_add_up_all_reduces_of_more_than_four_ranks_on_hopper_alone():
    growth = {
        name: bus_bytes_per_s(name, 8) / bus_bytes_per_s(name, 4)
        for name in ("h100_sxm", "h200_sxm", "h20", "a100_sxm_80gb", "b200_sxm")
    }
    # a rank sends the tensor and an eighth of it, at 5/6 of what a ring reaches
    in_switch = (1.75 / 1.125) * (5 / 6)
    assert [growth[name] for name in ("h100_sxm", "h200_sxm", "h20")] == pytest.approx([in_switch] * 3, rel=0.04)
    assert max(growth["a100_sxm_80gb"], growth["b200_sxm"]) < 1.06
    gathered = bus_bytes_per_s("h100_sxm", 8, "all_gather") / bus_bytes_per_s("h100_sxm", 4, "all_gather")
    assert gathered == pytest.approx(1.0, rel=0.05)


def test_twice_the_ranks_over_the_host_cost_what_they_did_from_two_to_four():
    rates = [bus_bytes_per_s("l40s", ranks) for ranks in (2, 4, 8)]
    assert rates[1] / rates[2] == pytest.approx(rates[0] / rates[1], rel=0.15)
    assert rates[1] / rates[2] > 3
    found = reduced("l40s", 8)
    assert found.low_s < 0.6 * found.time_s
    assert found.high_s > 1.6 * found.time_s


def test_boards_over_the_host_are_less_sure_where_links_stand_behind_their_scalars():
    ends = {name: reduced(name, 4) for name in ("rtx_pro_6000", "h20", "h200_sxm")}
    wide = {name: one.high_s / one.low_s for name, one in ends.items()}
    assert wide["rtx_pro_6000"] > 2.2
    assert ends["h20"].calibration.name.startswith("h100_sxm")


def test_copies_take_the_rate_of_the_host_link_and_others_that_of_the_links_between_devices():
    def time(direction):
        case = nearpeak.case("transfer", elements=2**28, dtype="fp32", direction=direction)
        return nearpeak.predict(case, "h100_sxm").time_s

    assert time("h2d") == pytest.approx(time("d2h"))
    assert time("h2d") > 4 * time("d2d_out")


def test_a_link_that_no_document_states_is_refused_in_one_line():
    with pytest.raises(NotModelledError, match="no link to"):
        nearpeak.predict(nearpeak.case("collective", elements=1024, dtype="bf16"), "jetson_nano")


def test_boards_that_share_bridges_slow_kernels_over_peer_memory_as_they_slow_rings():
    def time_s(ranks, **more):
        case = nearpeak.case("collective", elements=2**28, ranks=ranks, **more)
        return nearpeak.predict(case, "l40s").time_s

    ratios = [
        time_s(ranks, kind="all_gather", dtype="bf16") / time_s(ranks, kind="all_reduce", dtype="bf16")
        for ranks in (4, 8)
    ]
    assert ratios[1] == pytest.approx(ratios[0], rel=0.2)


@pytest.mark.parametrize(
    ("device", "stated"), [("l40s", {2: 20.0, 4: 5.2, 8: 1.4}), ("rtx_pro_6000", {2: 38.6, 4: 26.4, 8: 24.7})]
)
def test_all_reduces_over_slots_are_near_published_rates(device, stated):
    """Bus bandwidths of 512 MiB by NCCL (gpu_facts.md, collectives), in GB/s."""
    for ranks, rate in stated.items():
        case = nearpeak.case("collective", kind="all_reduce", elements=2**28, ranks=ranks, dtype="fp16")
        found = nearpeak.predict(case, device)
        stated_s = 2**29 * 2 * (ranks - 1) / ranks / (rate * 1e9)
        assert found.low_s < stated_s < found.high_s
        assert found.time_s == pytest.approx(stated_s, rel=0.25)
