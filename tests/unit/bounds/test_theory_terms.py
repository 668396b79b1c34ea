"""Terms of a bound: each side of every threshold, and nothing neutral for the unknown."""

import dataclasses

import pytest

from nearpeak.bounds.bound_table import bound_table
from nearpeak.bounds.case_bound import work_bound
from nearpeak.bounds.terms.unit_rates import matrix_rate
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import case, work_of
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
ALL_CHARGED = Policy(output_credit=False)


def test_one_byte_more_turns_a_case_from_compute_to_memory_limited():
    rate = H100.highest_flop_per_s("tensor.bf16")
    flop = 10**12
    ridge_bytes = flop / rate * H100.dram.bandwidth_bytes_per_s
    below = Work(flop={"matrix.bf16": flop}, read_bytes=int(ridge_bytes))
    above = Work(flop={"matrix.bf16": flop}, read_bytes=int(ridge_bytes) + 1)
    assert work_bound(below, H100).limiter == "matrix"
    assert work_bound(above, H100).limiter == "dram"


def test_outputs_that_fit_the_last_cache_cost_nothing_and_the_next_byte_does():
    cache = H100.l2.capacity_bytes
    assert work_bound(Work(write_bytes=cache), H100).time_s == 0
    assert work_bound(Work(write_bytes=cache + 1), H100).time_s == 1 / H100.dram.bandwidth_bytes_per_s


def test_without_credit_every_written_byte_is_charged():
    bound = work_bound(Work(write_bytes=4096), H100, ALL_CHARGED)
    assert bound.time_s == 4096 / H100.dram.bandwidth_bytes_per_s
    assert "A5" not in bound.assumptions


def test_an_unknown_cache_size_could_hold_every_output():
    unknown = dataclasses.replace(H100, l2=dataclasses.replace(H100.l2, capacity_bytes=None))
    assert work_bound(Work(write_bytes=10**12), unknown).time_s == 0


def test_warm_inputs_are_not_charged_up_to_the_cache():
    warm = Policy(cold_inputs=False)
    assert work_bound(Work(read_bytes=H100.l2.capacity_bytes), H100, warm).time_s == 0


def test_unknown_bandwidth_is_refused_by_name():
    unknown = dataclasses.replace(H100, dram=dataclasses.replace(H100.dram, bandwidth_bytes_per_s=None))
    with pytest.raises(NotModelledError, match="no DRAM bandwidth"):
        work_bound(Work(read_bytes=1), unknown)


def test_a_format_without_any_unit_is_refused_not_priced_at_zero():
    bare = dataclasses.replace(H100, peaks={"vector.fp16": H100.peaks["vector.fp32"]})
    with pytest.raises(NotModelledError, match="fp64"):
        matrix_rate(bare, "fp64", "strict")


def test_model_terms_never_set_the_bound():
    bound = work_bound(Work(flop={"vector.fp32": 10**15}, special_count=10**12, read_bytes=1), H100)
    assert bound.limiter == "dram"
    assert bound.terms_s["vector"] > bound.time_s


def test_formats_share_the_matrix_units_one_after_the_other():
    both = work_bound(Work(flop={"matrix.bf16": 10**12, "matrix.fp8_e4m3": 10**12}), H100).terms_s["matrix"]
    single = [work_bound(Work(flop={f"matrix.{d}": 10**12}), H100).terms_s["matrix"] for d in ("bf16", "fp8_e4m3")]
    assert both == sum(single)


@pytest.mark.parametrize(
    ("dtype", "policy", "unit"),
    [
        ("bf16", "strict", "tensor.bf16"),
        ("fp32", "tf32", "tensor.tf32"),
        ("fp32", "strict", "tensor.fp16 in 3 products"),
        ("fp64", "strict", "tensor.int8 in 14 products"),
        ("fp32", "hard", "tensor.fp8"),
    ],
)
def test_policy_admits_these_units_on_h100(dtype, policy, unit):
    found, _ = matrix_rate(H100, dtype, policy)
    assert found == unit


def test_a_wider_policy_never_raises_the_bound():
    work = Work(flop={"matrix.fp32": 10**12}, read_bytes=10**6)
    times = [work_bound(work, H100, Policy(dtype=policy)).time_s for policy in ("strict", "tf32", "hard")]
    assert times == sorted(times, reverse=True)


def test_the_roofline_uses_documented_rates_and_charges_all_bytes():
    bound = work_bound(Work(flop={"matrix.bf16": 989_400_000_000}), H100)
    assert bound.roofline_s == pytest.approx(1e-3)
    assert bound.time_s < bound.roofline_s


def test_directions_of_a_link_do_not_slow_each_other():
    rate = sum(link.bandwidth_bytes_per_s for link in H100.links.values())
    both = Work(comm_bytes={"peer.in": 10**9, "peer.out": 10**9})
    assert work_bound(both, H100).terms_s["link"] == 10**9 / rate
    assert work_bound(Work(comm_bytes={"peer.in": 10**9}), H100).terms_s["link"] == 10**9 / rate


def test_one_byte_more_turns_a_case_from_memory_to_link_limited():
    read = 10**9
    even = read / H100.dram.bandwidth_bytes_per_s * H100.links["host"].bandwidth_bytes_per_s
    below = work_bound(Work(read_bytes=read, comm_bytes={"host.out": int(even)}), H100)
    above = work_bound(Work(read_bytes=read, comm_bytes={"host.out": int(even) + 1}), H100)
    assert (below.limiter, above.limiter) == ("dram", "host")


def test_help_of_switches_never_raises_a_bound():
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "gather"):
        work = work_of(case("collective", elements=2**20, ranks=8, dtype="bf16", kind=kind))
        helped, alone = (work_bound(work, H100, Policy(switch_reduction=flag)) for flag in (True, False))
        assert helped.terms_s["link"] <= alone.terms_s["link"]
        assert "A17" in helped.assumptions
        assert "A17" not in alone.assumptions


def test_traffic_over_a_link_that_no_document_states_is_refused_by_name():
    bare = dataclasses.replace(H100, links={})
    for port, name in (("host.in", "link to the host"), ("peer.out", "link to other devices")):
        with pytest.raises(NotModelledError, match=f"no {name} is documented"):
            work_bound(Work(comm_bytes={port: 1}), bare)


def test_a_group_of_one_needs_no_link():
    alone = work_of(case("collective", elements=64, ranks=1, dtype="bf16"))
    assert "link" not in work_bound(alone, dataclasses.replace(H100, links={})).terms_s


def test_tables_of_collectives_equal_single_cases():
    kinds, ranks = ["all_reduce", "all_gather", "all_to_all", "reduce"], [2, 4, 8, 16]
    columns = {"op": "collective", "dtype": "bf16", "elements": 2**28, "kind": kinds, "ranks": ranks}
    table = bound_table(case_table(columns), H100, Policy())
    for row, (kind, count) in enumerate(zip(kinds, ranks, strict=True)):
        one = work_bound(work_of(case("collective", elements=2**28, ranks=count, dtype="bf16", kind=kind)), H100)
        assert table.bound_s[row] == one.time_s
        assert table.limiter[row] == one.limiter == "link"


def test_a_cpu_is_the_host_so_that_copies_to_the_host_cross_no_link():
    processor = dataclasses.replace(H100, name="some_cpu", kind="cpu", links={})
    work = Work(read_bytes=64, comm_bytes={"host.out": 64})
    found = work_bound(work, processor)
    assert (found.limiter, "host" in found.terms_s, "A16" in found.assumptions) == ("dram", False, False)
    with pytest.raises(NotModelledError, match="no link to other devices"):
        work_bound(dataclasses.replace(work, comm_bytes={"peer.out": 64}), processor)
