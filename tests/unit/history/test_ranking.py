"""Rankings out of a store: bounds, rivals, uses of a workload, and advice about them."""

from dataclasses import replace

import pytest

from nearpeak.core.history.stored_run import TIME, Device, RunRecord, SampleSet, Source, Testbed
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotFoundError
from nearpeak.history.demo_store import SUBJECTS
from nearpeak.history.opportunity_ranking import ranking_of
from nearpeak.ops import case, label_of
from nearpeak.store import open_store

H200 = Device(name="NVIDIA H200")


def filled(place, *times, runner="torch_cuda"):
    opened = open_store(place, create=True)
    for number, (one, time_s) in enumerate(times):
        flat = {name: value for name, value in one.record().items() if isinstance(value, (str, int, float))}
        samples = SampleSet(
            case=one.digest, label=label_of(one), metric=TIME, testbed=Testbed(name=runner), values=(time_s,) * 5,
            parameters=flat, workload=one.op, channels={"host_s": (time_s + 5e-6,) * 5},
        )  # fmt: skip
        opened.ingest(RunRecord(device=H200, samples=(samples,), source=Source(digest=f"{runner} {number}")))
    return opened


def test_gaps_are_proven_where_another_runner_is_faster(store):
    found = ranking_of(store, store.series(device="NVIDIA H200"))
    proven = {one.timed.case.op: one for one in found.gaps if one.kind == "proven"}
    assert proven["attention"].timed.best_known_by == "triton"
    assert all(one.gain_s <= one.theoretical_s for one in found.gaps)
    assert {one.timed.limiter for one in found.gaps if one.timed.case.op == "copy"} == {"dram"}


def test_a_workload_says_how_often_and_where_a_case_runs(store):
    one = SUBJECTS[4].case
    calls = [
        Call(case=one, operator="norm", phase="forward", module=f"layers.{number}.norm", call_count=2)
        for number in range(3)
    ]
    found = ranking_of(
        store, store.series(device="NVIDIA H200"), Workload(name="m", step="forward", calls=(*calls,)), model="m"
    )
    (gap,) = found.gaps
    assert (gap.timed.module, gap.timed.call_count, gap.timed.model) == ("layers.*.norm", 6, "m")


def test_measured_padding_precision_and_batches_become_advice(tmp_path):
    odd, whole = (
        case("gemm", m=2048, n=50257, k=4096, dtype="bf16"),
        case("gemm", m=2048, n=50304, k=4096, dtype="bf16"),
    )
    small, large = (case("gemm", m=m, n=4096, k=4096, dtype="bf16") for m in (8, 32))
    with filled(tmp_path / "a.db", (odd, 2e-3), (whole, 1.2e-3), (small, 400e-6), (large, 440e-6)) as store:
        found = ranking_of(store, store.series())
    measured = {one.opportunity.kind for one in found.advice if one.basis == "measured"}
    assert {"padding", "batching"} <= measured
    padding = next(one.opportunity for one in found.advice if one.opportunity.kind == "padding")
    assert padding.gain_s == pytest.approx(0.8e-3, rel=1e-3)


def test_a_time_below_its_bound_and_a_device_without_file_are_said_and_not_ranked(tmp_path):
    with filled(tmp_path / "a.db", (case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), 1e-6)) as store:
        found = ranking_of(store, store.series())
    assert found.gaps == ()
    assert "below its bound" in found.abstentions[0].reason


def test_a_store_without_cases_of_operators_says_so(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as store:
        samples = SampleSet(case="x", label="x", metric=TIME, testbed=Testbed(name="nvbench"), values=(1.0,))
        store.ingest(RunRecord(device=H200, samples=(samples,), source=Source(digest="d")))
        with pytest.raises(NotFoundError, match="no measured case"):
            ranking_of(store, store.series())


def test_a_gap_says_what_is_missing_to_the_expected_time_of_all_calls(store):
    gaps = [gap for gap in ranking_of(store, store.series(device="NVIDIA H200")).gaps if gap.timed.expected_s]
    assert gaps
    for gap in gaps:
        assert gap.timed.bound_s < gap.timed.expected_s
        assert gap.to_expected_s == max(0.0, gap.timed.measured_s - gap.timed.expected_s)
        thrice = replace(gap, timed=replace(gap.timed, call_count=3))
        assert thrice.to_expected_s == pytest.approx(3 * gap.to_expected_s)
        assert replace(gap, timed=replace(gap.timed, expected_s=None)).to_expected_s is None
