"""Sensors of a GPU beside a load on it: relations that hold on any, no absolute figures."""

import time

import pytest

import nearpeak
from nearpeak.api.measured_analysis import measure
from nearpeak.core.runs.energy import energies_of
from nearpeak.core.runs.measurement import Timing
from nearpeak.measurement.telemetry.sampler_client import Sampler

torch = pytest.importorskip("torch")
pytest.importorskip("pynvml")
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees"),
    pytest.mark.skipif(torch.version.hip is not None, reason="NVML is for NVIDIA GPUs"),
]
LOAD = nearpeak.case("gemm", m=8192, n=8192, k=8192, dtype="bf16")


@pytest.fixture(scope="module")
def beside():
    timing = Timing(cache="hot", validate=False, budget_s=5.0, precision_ratio=0.0, limit_s=60.0)
    (found,) = measure(LOAD, "torch_cuda", timing, telemetry_hz=100)
    return found.telemetry


def test_power_clock_and_temperature_are_read(beside):
    read = {one.channel.name.partition(".")[2]: one for one in beside.series() if not one.channel.status}
    begin_s, end_s = beside.span_of("samples")
    assert {"sm_clock", "temperature", "power_limit"} <= set(read)
    assert read.keys() & {"power", "power_usage"}
    for name in ("sm_clock", "temperature", "power_limit"):
        assert min(read[name].within(begin_s, end_s)) > 0


def test_counter_and_integral_of_a_lasting_load_agree_within_their_bounds_and_a_tenth(beside):
    found = [one for one in energies_of(beside, "samples") if one.domain == "gpu0"]
    counted = [one for one in found if one.method == "counter"]
    if not counted:
        pytest.skip("this GPU counts no energy")
    for one in found:
        apart_j = abs(one.energy_j - counted[0].energy_j)
        assert apart_j <= one.error_j + counted[0].error_j + 0.1 * counted[0].energy_j


@pytest.mark.parametrize(("rate_hz", "sources", "most_ratio"), [(100, ("nvml_power",), 0.02), (10, (), 0.01)])
def test_the_sampler_takes_at_most_its_share_of_a_core(rate_hz, sources, most_ratio):
    with Sampler(rate_hz, sources) as sampler:
        begin_ns = time.monotonic_ns()
        time.sleep(4.0)
        seen = sampler.window(begin_ns, time.monotonic_ns())
    assert seen.cpu_s <= most_ratio * seen.window_s
