"""Devices that do not exist: equal devices give equal runs, and fronts hold what nothing beats."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from nearpeak.core.answers.what_if import WhatIf
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.what_if_report import sweep_document, tornado_document
from nearpeak.simulation.architecture_sweep import axes_of, sensitivity, sweep, with_best
from nearpeak.simulation.step_simulation import simulate_step
from nearpeak.simulation.step_timeline import LAUNCHES, simulate_timeline
from nearpeak.targets import target_of

GEMM = case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
COPY = case("elementwise", elements=2**24, function="relu", dtype="bf16")
STEP = Workload(name="w", step="sweep", calls=(
    Call(case=GEMM, operator="gemm", phase="forward", call_count=2),
    Call(case=COPY, operator="relu", phase="forward", call_count=3),
))  # fmt: skip
H100 = target_of("h100_sxm")


@pytest.mark.parametrize("edit", [
    "sm_count=132", "dram.bandwidth=3.35 TB/s", "dram.bandwidth=3350 GB/s", "clock.max=1.98 GHz", "l2.capacity=50 MiB",
    "peak.tensor.bf16.sm_clock=4096 FLOP",
])  # fmt: skip
def test_a_figure_that_is_the_devices_own_changes_nothing(edit):
    (same,) = sweep(STEP, "h100_sxm", axes_of([edit]))
    assert (same.time_ratio, same.energy_ratio, same.area_ratio) == (1.0, 1.0, 1.0)
    assert same.time_s == pytest.approx(simulate_step(STEP, H100).time_s, rel=1e-12)


def test_devices_may_be_run_side_by_side():
    axes = axes_of(["sm_count=66,132,160", "dram.bandwidth=3 TB/s,6 TB/s"])
    with ThreadPoolExecutor(2) as pool:
        assert sweep(STEP, "h100_sxm", axes, executor=pool) == sweep(STEP, "h100_sxm", axes)


def test_a_front_is_what_brute_force_says():
    values = list(itertools.product((1.0, 2.0, 3.0), (0.9, 1.0), (5.0, 6.0)))
    rows = [WhatIf(edits=(str(i),), time_s=t, time_ratio=t, area_ratio=a, energy_j=e) for i, (t, a, e) in
            enumerate(values[1:])]  # fmt: skip
    found = with_best(rows)
    for one in found:
        mine = (one.time_s, one.area_ratio, one.energy_j)
        beaten = any(
            all(x <= y for x, y in zip(other, mine, strict=True)) and other != mine
            for other in ((o.time_s, o.area_ratio, o.energy_j) for o in rows)
        )
        assert one.is_best is not beaten


def test_a_larger_device_costs_area_and_pays_in_time():
    found = {one.name: one for one in sensitivity(STEP, "h100_sxm")}
    assert found["dram.bandwidth"].more.time_ratio < 1 < found["dram.bandwidth"].less.time_ratio
    assert found["sm_count"].more.area_ratio > 1 > found["sm_count"].less.area_ratio
    assert found["special.sm_clock"].swing_ratio() == 0.0
    with pytest.raises(SpecError, match="more than 1"):
        sensitivity(STEP, "h100_sxm", 0.9)


def test_plots_show_every_device_and_figure_as_text_and_as_a_page():
    swept = sweep(STEP, "h100_sxm", axes_of(["sm_count=66,132"]))
    rows = sensitivity(STEP, "h100_sxm")
    text, page = to_terminal(sweep_document("t", swept)), to_html(sweep_document("t", swept))
    assert all(one.edits[0] in text for one in swept)
    assert page.count("<circle") == 2 * len(swept)
    text, page = to_terminal(tornado_document("t", rows)), to_html(tornado_document("t", rows))
    assert all(one.name in text and one.name in page for one in rows)
    assert "buys most" in text


def test_calls_that_are_not_modelled_are_counted_and_shown():
    unknown = Call(case=None, operator="custom::op", phase="forward", call_count=7)
    holed = Workload(name="w", step="sweep", calls=(*STEP.calls, unknown))
    swept, rows = sweep(holed, "h100_sxm", axes_of(["sm_count=66,132"])), sensitivity(holed, "h100_sxm")
    assert [one.unmodelled_count for one in swept] == [7, 7]
    assert [one.time_s for one in swept] == [
        one.time_s for one in sweep(STEP, "h100_sxm", axes_of(["sm_count=66,132"]))
    ]
    for document in (sweep_document("t", swept), tornado_document("t", rows)):
        for text in (to_terminal(document), to_html(document)):
            assert "not in it: 7 calls" in text
    whole = sweep_document("t", sweep(STEP, "h100_sxm", axes_of(["sm_count=66"])))
    assert "not in it" not in to_terminal(whole)


@pytest.mark.parametrize("text", ["sm_count=0", "dram.bandwidth=-3 TB/s", "l2.capacity=0 MiB", "sm_count=132,"])
def test_figures_of_impossible_devices_are_refused(text):
    with pytest.raises(SpecError, match="sweep"):
        axes_of([text])


def test_a_step_in_a_chain_takes_as_long_as_its_kernels_one_by_one():
    chain = simulate_timeline(STEP, H100)
    alone = simulate_step(STEP, H100)
    assert chain.run.end_ps * 1e-12 == pytest.approx(alone.time_s, rel=1e-9)
    assert len(chain.run.spans) == alone.kernel_count == 5


def test_early_starts_hide_launches_a_graph_costs_one_and_eager_hosts_cost_most():
    times = {launch: simulate_timeline(STEP, H100, launch).run.end_ps * 1e-6 for launch in LAUNCHES}
    assert times["chain"] < times["graph"] < times["eager"]
    assert times["early"] < times["graph"] - 6
    assert times["graph"] - times["chain"] == pytest.approx(7.5 + 2.0, rel=1e-3)
    with pytest.raises(SpecError, match="--launch"):
        simulate_timeline(STEP, H100, "late")
