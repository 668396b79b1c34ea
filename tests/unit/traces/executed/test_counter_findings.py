"""Pages of Nsight Compute: its rules passed through, and what counters say where no rule does."""

import csv

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_counters as counters

from nearpeak.reports.trace.steps_headline import headline_of
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of


def found(file):
    return {one.id: one for one in report_of(executed_of(read_trace(file))).findings}


def page(tmp_path, metrics, *, name="void own_kernel", rules=(), grid="(264, 1, 1)"):
    file = tmp_path / "page.csv"
    with file.open("w", newline="") as handle:
        rows = csv.writer(handle, quoting=csv.QUOTE_ALL)
        rows.writerow(counters._HEADER)
        head = (0, 1, "python", "host", name, 1, 7, "(256, 1, 1)", grid, 0, "9.0", "Counters", "")
        for metric, value in {"gpu__time_duration.sum": 100_000, **metrics}.items():
            unit = "ns" if "duration" in metric else "%"
            rows.writerow((*head, metric, unit, value, "", "", "", "", ""))
        for rule, kind, scope, share in rules:
            rows.writerow((*head[:-1], "", "", "", "", rule, kind, "It says so.", scope, share))
    return file


def test_global_estimates_of_the_profiler_shorten_the_kernel_and_are_not_added(tmp_path):
    rules = [("UncoalescedGlobalAccess", "OPT", "global", "40"), ("WorkloadImbalance", "OPT", "global", "30")]
    file = page(tmp_path, {}, rules=rules)
    report = report_of(executed_of(read_trace(file)))
    gains = {one.id: one.gain_s for one in report.findings}
    assert gains == {"ncu.UncoalescedGlobalAccess": pytest.approx(40e-6), "ncu.WorkloadImbalance": pytest.approx(30e-6)}
    assert report.together_s == pytest.approx(40e-6)
    assert report.exclusive == (("ncu.UncoalescedGlobalAccess", "ncu.WorkloadImbalance"),)


def test_local_estimates_are_bounds_only(tmp_path):
    one = found(page(tmp_path, {}, rules=[("AchievedOccupancy", "OPT", "local", "50")]))["ncu.AchievedOccupancy"]
    assert (one.gain_s, one.gain_high_s, one.method) == (0.0, pytest.approx(50e-6), "bound")


def test_rules_that_only_inform_are_no_findings(tmp_path):
    assert not found(page(tmp_path, {}, rules=[("SOLFPRoofline", "INF", "", "")]))


def test_what_the_profiler_says_itself_is_not_worked_out_again(tmp_path):
    sectors = {"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25,
               "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 90,
               "sm__throughput.avg.pct_of_peak_sustained_elapsed": 10}  # fmt: skip
    own = found(page(tmp_path, sectors))["ncu.UncoalescedGlobalAccess"]
    said = found(page(tmp_path, sectors, rules=[("UncoalescedGlobalAccess", "OPT", "global", "20")]))
    assert own.gain_s == pytest.approx(75e-6)
    assert said["ncu.UncoalescedGlobalAccess"].gain_s == pytest.approx(20e-6)


@pytest.mark.parametrize(("memory", "is_found"), [(61, True), (59, False)])
def test_unused_sectors_cost_time_only_where_memory_limits(memory, is_found, tmp_path):
    sectors = {"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25,
               "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": memory,
               "sm__throughput.avg.pct_of_peak_sustained_elapsed": 10}  # fmt: skip
    assert ("ncu.UncoalescedGlobalAccess" in found(page(tmp_path, sectors))) == is_found


@pytest.mark.parametrize(("tensor", "is_found"), [(0, True), (1, False)])
def test_a_product_whose_matrix_units_do_nothing_is_named(tensor, is_found, tmp_path):
    pipes = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": tensor,
             "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": 80}  # fmt: skip
    assert ("ncu.TensorPipeIdle" in found(page(tmp_path, pipes, name="ampere_sgemm_128x64_tn"))) == is_found


def test_a_kernel_far_from_every_roof_is_named_with_what_limits_its_warps(tmp_path):
    waits = {"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 20,
             "sm__throughput.avg.pct_of_peak_sustained_elapsed": 15,
             "launch__occupancy_limit_registers": 2, "launch__occupancy_limit_shared_mem": 9}  # fmt: skip
    one = found(page(tmp_path, waits))["ncu.SOLBottleneck"]
    assert "registers" in one.claim
    assert one.gain_high_s == pytest.approx(80e-6)


@pytest.mark.parametrize(("grid", "is_found"), [("(131, 1, 1)", False), ("(66, 1, 1)", True), ("(132, 1, 1)", False)])
def test_fewer_blocks_than_multiprocessors_waste_the_others(grid, is_found, tmp_path):
    assert ("ncu.LaunchConfiguration" in found(page(tmp_path, {"launch__sm_count": 132}, grid=grid))) == is_found


@pytest.mark.parametrize("seed", range(6))
def test_good_kernels_show_nothing(seed, tmp_path):
    assert not found(counters.write(counters.healthy(seed), tmp_path / "page.csv"))


def test_no_idle_time_is_concluded_on_where_kernels_are_placed_end_to_end(tmp_path):
    report = report_of(executed_of(read_trace(counters.write(counters.healthy(1), tmp_path / "page.csv"))))
    assert report.verdict.startswith("no conclusion on")
    assert "busy" not in headline_of(report)
    assert "placed end to end" in headline_of(report)
