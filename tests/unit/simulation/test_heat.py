"""Power, temperature and energy: time constants, fixed points, and work that costs the same however it runs."""

import math
from dataclasses import replace

import pytest

from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.machine import LIMITS, Machine
from nearpeak.simulation.power_governor import Power
from nearpeak.simulation.run_energy import power_of, run_j, scaled, work_j
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

S = 10**12
H200 = target_of("h200_sxm")
WARM = Power(
    idle_w=10.0, limit_w=1000.0, pipe_w={"tensor": 10.0}, ambient_celsius=20.0, warming_celsius_per_w=1.0,
    warming_ps=2 * S, limit_celsius=200.0,
)  # fmt: skip


def products(seconds, power):
    machine = Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], power=power)
    phases = (Phase(pipe_s={"tensor": seconds}),)
    return simulate(machine, [Kernel(name="a", cta_count=4, phases=phases, needs=LIMITS["hopper"])])


def test_temperature_comes_near_its_rest_with_its_time_constant():
    run = products(4.0, WARM)
    for (time_ps, watt, _), celsius in zip(run.governed, run.heat_celsius, strict=True):
        assert watt == pytest.approx(50.0)
        assert celsius == pytest.approx(20 + 50 * (1 - math.exp(-time_ps / (2 * S))), abs=1e-6)


def test_the_clock_falls_under_heat_until_the_temperature_stays():
    run = products(10.0, replace(WARM, limit_celsius=55.0))
    assert max(run.heat_celsius) <= 55.5
    _, watt, clock = run.governed[-2]
    volt = 0.6 + 0.4 * clock
    assert watt == pytest.approx(10 + 40 * clock * volt * volt, rel=1e-6)
    assert 20 + watt == pytest.approx(55.0, abs=0.7)
    early = [clock for time, _, clock in run.governed if time < S // 2]
    assert min(early) == 1.0 > clock


def test_a_warm_board_leaks():
    cold, warm = (products(0.5, replace(WARM, leakage_ratio_per_celsius=ratio)).energy_j for ratio in (0.0, 0.01))
    assert 1.0 < warm / cold < 1.1


@pytest.mark.parametrize("wrong", [
    {"limit_celsius": 25.0}, {"warming_celsius_per_w": -1.0}, {"busy_w": -1.0}, {"warming_ps": 0},
])  # fmt: skip
def test_a_board_that_cannot_be_is_refused(wrong):
    with pytest.raises(SpecError, match="power"):
        replace(WARM, **wrong)


def test_without_a_governor_energy_is_counted_and_times_stay():
    power = replace(WARM, governs=False, limit_w=1e9)
    phases = (Phase(fixed_ps=S), Phase(pipe_s={"tensor": 1.0}))
    machine = Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], power=power)
    work = [Kernel(name="a", cta_count=4, phases=phases, needs=LIMITS["hopper"])]
    run = simulate(machine, work)
    assert run.energy_j is None
    assert work_j(work[0], power) == 40.0
    assert run_j(work, run, power) == pytest.approx(2 * 10.0 + 40.0)
    assert run_j(work, run, replace(power, busy_w=3.0)) == pytest.approx(2 * 10.0 + 40.0 + 3.0)


def test_a_kernel_of_a_launch_draws_what_the_board_does_at_rest():
    run = simulate_case(case("elementwise", elements=100, function="relu", dtype="bf16"), H200)
    assert run.energy_j / (run.end_ps / S) == pytest.approx(power_of(H200).idle_w, rel=0.05)


def test_a_large_product_draws_about_its_limit():
    run = simulate_case(case("gemm", m=8192, n=8192, k=8192, dtype="bf16"), H200)
    assert run.energy_j / (run.end_ps / S) == pytest.approx(700.0, rel=0.1)


def test_a_governor_replaces_what_was_measured_of_a_falling_clock():
    product = case("gemm", m=8192, n=8192, k=16384, dtype="bf16")
    measured, governed = (simulate_case(product, H200, governed=flag) for flag in (False, True))
    assert governed.governed
    assert governed.end_ps != measured.end_ps


def test_a_larger_die_draws_more_at_rest_and_as_much_for_each_operation():
    power, larger = power_of(H200), scaled(power_of(H200), 2.0, 1.0)
    assert larger.idle_w == 2 * power.idle_w
    assert larger.pipe_w == power.pipe_w
    assert scaled(power, 1.0, 0.5).pipe_w["tensor"] < 0.5 * power.pipe_w["tensor"]


def test_a_device_without_a_documented_limit_has_no_energy():
    nothing = replace(H200, name="own", power_w=None)
    assert power_of(nothing) is None
