"""Streams that share a device, and whole steps."""

import numpy as np
import pytest
from typer.testing import CliRunner

from nearpeak.api.case_words import case_of
from nearpeak.cli import application
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.ops import case
from nearpeak.ops.shared.number_formats import FloatFormat
from nearpeak.simulation.architecture_sweep import axes_of, sensitivity, sweep
from nearpeak.simulation.emulation.accumulator import FP32, HOPPER_FP8, Accumulator
from nearpeak.simulation.emulation.emulated_case import emulated
from nearpeak.simulation.runner import Sim
from nearpeak.simulation.scenario import POLICIES, Stream, share
from nearpeak.simulation.scenario_file import scenario_of
from nearpeak.simulation.step_simulation import simulate_case, simulate_step
from nearpeak.targets import target_of
from nearpeak.validation import validate

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
    assert first.name in ("sm_count", "clock.max", "peak.tensor.bf16.sm_clock")
    assert next(one for one in others if one.name == "dram.bandwidth").more.time_ratio == pytest.approx(1, abs=0.05)


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


FILE = """
[[stream]]
name = "camera"
cases = ["gemm m=256 n=1024 k=1024 dtype=bf16"]
count = 3
period = "1 ms"
deadline = "500 us"
"""


def test_streams_are_read_from_a_file(tmp_path):
    (tmp_path / "s.toml").write_text(FILE)
    (stream,) = scenario_of(tmp_path / "s.toml", lambda words: case_of(words, "simulate")).streams
    assert (stream.count, stream.period_s, stream.deadline_s) == (3, 1e-3, 5e-4)
    assert stream.cases[0] == SMALL


@pytest.mark.parametrize(("old", "new", "message"), [
    ("[[stream]]", "[stream]", "one or more"), ("period", "perod", "no key perod"), ("[[", "[[[", "not TOML"),
    ("count = 3", 'count = "3"', "a whole number"), ("count = 3", "count = 0", "needs a job"),
    ('"1 ms"', '"1 kg"', "stream camera"), ("gemm", "gem", "gemm"),
])  # fmt: skip
def test_bad_streams_are_named(tmp_path, old, new, message):
    (tmp_path / "s.toml").write_text(FILE.replace(old, new, 1))
    with pytest.raises(NearpeakError, match=message):
        scenario_of(tmp_path / "s.toml", lambda words: case_of(words, "simulate"))


@pytest.mark.parametrize(("accumulator", "status"), [
    (FP32, "PASS"), (HOPPER_FP8, "NUMERIC_FAIL"), (Accumulator(significant_bits_count=8), "NUMERIC_FAIL"),
])  # fmt: skip
def test_emulated_products_are_judged_by_the_contract_of_silicon(accumulator, status):
    pytest.importorskip("torch", reason="validation draws its inputs with PyTorch")
    product = case("gemm", m=16, n=24, k=512, dtype="bf16")
    assert validate(product, emulated(product, accumulator), seed=0).status == status


def test_a_format_of_ones_own_is_a_row():
    own = FloatFormat(name="bf16", exponent_bits_count=6, fraction_bits_count=4)
    product = case("gemm", m=4, n=4, k=16, dtype="bf16")
    ones = {"a": np.full((1, 4, 16), 1.03), "b": np.ones((1, 16, 4))}
    found = emulated(product, formats={"bf16": own})(ones)["y"]
    assert set(np.unique(found)) == {16.0 if 16 * 1.03 < 16.5 else 17.0}


@pytest.mark.parametrize("words", [
    ("gemm", "m=8", "n=8", "k=8", "dtype=bf16", "--sweep", "sm_count=66"), ("s.toml", "--launch", "graph"),
    ("gemm", "m=8", "n=8", "k=8", "dtype=bf16", "--policy", "turns"), ("s.toml", "--workers", "2"),
])  # fmt: skip
def test_options_without_a_meaning_are_refused(words):
    found = CliRunner().invoke(application(), ["simulate", *words, "--target", "h100_sxm"])
    assert isinstance(found.exception, SpecError)
    assert "has no meaning" in str(found.exception)
