"""Choice of power modes against enumeration, published goldens and closed forms."""

import itertools
import random

import pytest
from tests.sampling import sampled

from nearpeak.systems.edge.mode_choice import energy_of_period, pareto_places, ranked, switching_idle_w

XAVIER = {
    "MAXN": (0.06007, 22.21), "30W_4CORE": (0.1669, 9.85), "30W_ALL": (0.1799, 8.42), "30W_6CORE": (0.1829, 8.87),
    "15W": (0.2782, 7.59),
}  # fmt: skip
"""Time and power at the wall of ResNet-50, fp32, Arm NN, on the CPU of an AGX Xavier (MLPerf Inference v1.1)."""


def best(names, values, allowed):
    places = ranked(values, allowed)
    return names[places[0]] if places else ""


def test_published_modes_of_a_xavier():
    names, figures = list(XAVIER), list(XAVIER.values())
    times, powers = zip(*figures, strict=True)
    energies = [energy_of_period(*figure) for figure in figures]
    assert [round(value, 3) for value in energies] == [1.334, 1.644, 1.515, 1.622, 2.112]
    assert {names[place] for place in pareto_places(times, powers)} == set(names) - {"30W_6CORE"}
    assert best(names, energies, [True] * 5) == "MAXN"
    assert best(names, energies, [power < 9 for power in powers]) == "30W_ALL"


def enumerated(times, powers):
    points = list(zip(times, powers, strict=True))
    return {
        place for place, (time, power) in enumerate(points)
        if not any(t <= time and p <= power and (t, p) != (time, power) for t, p in points)
    }  # fmt: skip


@pytest.mark.parametrize("seed", sampled(range(30), 10))
def test_pareto_set_is_that_of_enumeration(seed):
    draw = random.Random(seed)
    times, powers = ([draw.choice((1.0, 2.0, 3.0, draw.random())) for _ in range(40)] for _ in range(2))
    assert pareto_places(times, powers) == enumerated(times, powers)


@pytest.mark.parametrize("seed", sampled(range(20), 7))
def test_a_tighter_cap_never_improves_the_best(seed):
    draw = random.Random(seed)
    values, powers = ([draw.uniform(1, 30) for _ in range(25)] for _ in range(2))
    bests = []
    for cap in (30, 20, 10, 5, 2):
        places = ranked(values, [power <= cap for power in powers])
        bests.append(values[places[0]] if places else float("inf"))
    assert bests == sorted(bests)


def test_idle_power_at_which_another_mode_is_best():
    times, powers, period = [0.010, 0.020, 0.040], [20.0, 12.0, 7.0], 0.1
    for idle in (0.5, 2.0, 3.0, 5.0, 9.0):
        energies = [energy_of_period(t, p, idle, period) for t, p in zip(times, powers, strict=True)]
        first = energies.index(min(energies))
        switch = switching_idle_w(times, powers, period, first, idle)
        sides = {
            min(range(3), key=lambda place: energy_of_period(times[place], powers[place], rest, period))
            for rest in (switch - 1e-6, switch + 1e-6)
        }
        assert first in sides
        assert len(sides) == 2


def test_energy_without_a_period_is_time_times_power():
    for time, power in itertools.product((0.1, 2.0), (3.0, 40.0)):
        assert energy_of_period(time, power) == time * power
        assert energy_of_period(time, power, idle_w=5.0, period_s=time / 2) == time * power
