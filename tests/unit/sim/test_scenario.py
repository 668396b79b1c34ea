"""Streams that share a device, and whole steps."""

import pytest

from nearpeak.core.measurement import Outcome, Timing
from nearpeak.core.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.sim.runner import Sim
from nearpeak.sim.scenario import POLICIES, Stream, share
from nearpeak.sim.simulation import simulate_case, simulate_step
from nearpeak.sim.what_if import axes_of, sensitivity, sweep
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
LARGE = case("gemm", m=8192, n=8192, k=8192, dtype="bf16")
SMALL = case("gemm", m=256, n=1024, k=1024, dtype="bf16")


def streams(**kwargs):
    return [
        Stream(name="camera", cases=(SMALL, SMALL), count=20, period_s=2e-4, deadline_s=1.5e-4, priority=1),
        Stream(name="batch", cases=(LARGE,), count=3),
    ]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_is_faster_than_the_device_alone(policy):
    found = share(streams(), H100, policy)
    camera, batch = found.streams
    assert camera.median_s >= camera.alone_s * (1 - 1e-9)
    assert camera.p99_s >= camera.median_s
    assert found.end_s >= 3 * batch.alone_s * (1 - 1e-9) or policy == "masks"


def test_multiprocessors_of_its_own_spare_a_stream_its_wait():
    alike, apart = (share(streams(), H100, policy).streams[0] for policy in ("streams", "slices"))
    assert alike.missed_count > 0
    assert apart.missed_count == 0
    assert any("blocks of batch" in reason for reason in alike.reasons)


def test_an_unknown_policy_is_refused():
    with pytest.raises(SpecError, match="not one of streams"):
        share(streams(), H100, "fair")


def test_a_step_is_the_sum_of_its_kernels_and_names_what_is_not_in_it():
    calls = (
        Call(case=LARGE, operator="gemm", phase="forward", call_count=2),
        Call(case=None, operator="strange", phase="forward"),
        Call(case=case("elementwise", elements=10**6, function="relu", dtype="bf16"), operator="relu", phase="forward"),
    )  # fmt: skip
    found = simulate_step(Workload(name="w", step="sweep", calls=calls), H100)
    alone = simulate_case(LARGE, H100).end_ps * 1e-12
    assert found.call_s[0] == pytest.approx(2 * alone)
    assert found.call_s[1] is None
    assert found.time_s == pytest.approx(sum(time for time in found.call_s if time))
    assert sum(found.unmodelled_count.values()) == 1


@pytest.mark.parametrize(("edit", "slower"), [
    ('dram.bandwidth="1 TB/s"', case("gemm", m=8, n=8192, k=8192, dtype="bf16")), ("sm_count=66", LARGE),
])  # fmt: skip
def test_a_smaller_device_is_slower_where_that_matters(edit, slower):
    assert simulate_case(slower, target_of("h100_sxm", [edit])).end_ps > 1.3 * simulate_case(slower, H100).end_ps


def step():
    return Workload(name="w", step="sweep", calls=(Call(case=LARGE, operator="gemm", phase="forward"),))


def test_products_gain_from_multiprocessors_not_from_memory():
    first, *others = sensitivity(step(), "h100_sxm")
    assert first.edits[0].startswith(("sm_count", "clock.max"))
    assert next(one for one in others if one.edits[0].startswith("dram")).time_ratio == pytest.approx(1, abs=0.05)


def test_a_sweep_marks_what_nothing_dominates():
    found = sweep(step(), "h100_sxm", axes_of(["sm_count=66,132", "dram.bandwidth=3 TB/s,6 TB/s"]))
    assert len(found) == 4
    best = [one for one in found if one.is_best]
    assert best[0] is found[0]
    assert [one.time_s for one in best] == sorted((one.time_s for one in best), reverse=True)


@pytest.mark.parametrize("text", ["sm_count", "sm_count=a", "special=3", "dram.bandwidth=3 apples"])
def test_what_cannot_be_swept_is_named(text):
    with pytest.raises(SpecError, match=r"sweep|apples"):
        axes_of([text])


def test_a_simulated_device_is_a_runner():
    runner = Sim("h100_sxm", Timing())
    found = runner.measure(LARGE)
    assert found.outcome is Outcome.CONVERGED
    assert set(found.samples_s) == {simulate_case(LARGE, H100).end_ps / 1e12}
    assert runner.measure(case("lbfgs", parameters=10, history=2, dtype="fp32")).outcome in Outcome
    with pytest.raises(SpecError, match="names no target"):
        Sim("", Timing())
