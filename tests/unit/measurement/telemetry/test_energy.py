"""Energy of known signals: exact where it must be, within its bound everywhere, and warned of where nothing holds."""

import math
import random
from itertools import pairwise

import pytest
from tests.sampling import long

from nearpeak.core.runs.energy import energies_of, energy_of, increments, preferred
from nearpeak.core.runs.telemetry import Channel, Series, Stream, Telemetry
from nearpeak.errors import SpecError


def power(times_s, watts, *, doubts_s=None, **more):
    channel = Channel(name="p.power", unit="W", kind=more.pop("kind", "instantaneous"), meaning="", domain="p", **more)
    return Series(
        source="test", channel=channel, times_s=times_s, doubts_s=doubts_s or [0.0] * len(times_s), values=watts
    )


def counter(times_s, joules, **more):
    channel = Channel(name="p.energy", unit="J", kind="counter", meaning="", domain="p", **more)
    return Series(source="test", channel=channel, times_s=times_s, doubts_s=[0.0] * len(times_s), values=joules)


def every(step_s, count):
    return [step_s * number for number in range(count)]


def test_constant_power_and_a_ramp_are_exact():
    times = every(0.1, 101)
    constant = energy_of(power(times, [5.0] * 101), 0.0, 10.0)
    assert constant.energy_j == pytest.approx(50.0)
    assert constant.error_j == 0
    ramp = energy_of(power(times, times), 0.0, 10.0)
    assert ramp.energy_j == pytest.approx(50.0)
    assert ramp.parts_j["sampling"] == pytest.approx(0.5)  # half of 100 steps of 0.1 W x 0.1 s


def test_the_parts_of_a_window_sum_to_the_whole():
    draw = random.Random(1)
    times = sorted(draw.uniform(0, 10) for _ in range(200))
    for series in (power(times, [draw.uniform(5, 50) for _ in times]), counter(times, [t * t for t in times])):
        cuts = [0.0, *sorted(draw.uniform(0, 10) for _ in range(7)), 10.0]
        parts = [energy_of(series, a, b).energy_j for a, b in pairwise(cuts)]
        assert math.fsum(parts) == pytest.approx(energy_of(series, 0.0, 10.0).energy_j, rel=1e-12)


@pytest.mark.parametrize("count", [100, long(1000)])
def test_the_bound_holds_for_random_signals_of_limited_slope(count):
    draw = random.Random(2)
    for _ in range(count):
        slope, step, watts, truth, area = draw.uniform(1, 100), draw.choice([10, 20, 50]), 100.0, [100.0], 0.0
        for _ in range(1000):  # a millisecond each
            after = watts + draw.uniform(-1, 1) * slope * 1e-3 if draw.random() < 0.5 else watts + slope * 1e-3
            area += (watts + after) / 2 * 1e-3
            watts = after
            truth.append(watts)
        times = [1e-3 * n for n in range(0, 1001, step)]
        found = energy_of(power(times, truth[::step]), 0.0, times[-1], slew_w_per_s=slope)
        assert abs(found.energy_j - area) <= found.error_j + 1e-9


def test_the_bound_holds_for_monotone_jumps_between_readings():
    # 10 W until just before a reading, then 20 W: the line between them is half a step too high
    found = energy_of(power([0.0, 1.0, 2.0], [10.0, 20.0, 20.0]), 0.0, 2.0)
    assert found.low_j <= 10.0 + 20.0 <= found.high_j
    part = energy_of(power([0.0, 1.0, 2.0], [10.0, 20.0, 20.0]), 0.0, 0.5)
    assert part.low_j <= 5.0
    assert part.high_j >= 10.0


def test_every_cause_of_error_has_its_part():
    times, watts = every(0.1, 11), [10.0, 20.0] * 5 + [10.0]
    series = power(
        times, watts, doubts_s=[1e-3] * 11, kind="mean", resolution=0.5, window_s=0.4, update_s=0.1, gain_ratio=0.01
    )
    found = energy_of(series, 0.0, 1.0)
    assert found.parts_j == pytest.approx(
        {"sampling": 5.0, "quantisation": 0.25, "window": 2.0, "lag": 1.0, "time": 0.02, "gain": 0.15}
    )
    assert found.unstated == ()
    assert energy_of(power(times, watts), 0.0, 1.0).unstated == ("resolution", "gain error", "update period")


def test_a_sensor_slower_than_its_polling_is_bounded_by_its_own_period():
    truth = [10.0 + 10.0 * ((number // 40) % 2) for number in range(1001)]  # changes every 0.4 s
    held = [truth[number - number % 50] + number // 50 * 1e-3 for number in range(1001)]  # seen every half second
    found = energy_of(power(every(0.01, 1001), held), 0.0, 10.0)
    assert found.sample_count <= 22
    assert found.parts_j["lag"] == pytest.approx(0.5 * 10, rel=0.01)  # one period times a range of 10 W
    assert found.low_j <= math.fsum(truth[:-1]) * 0.01 <= found.high_j


def test_readings_out_of_order_repeated_failed_or_missing_are_counted_and_do_no_harm():
    times = [0.0, 1.0, 1.0, 3.0, 2.0, 4.0, 5.0, 6.0, 12.0]
    values = [10.0, 10.0, 10.0, 10.0, 10.0, math.nan, 10.0, 10.0, 10.0]
    found = energy_of(power(times, values), 0.0, 12.0)
    assert found.energy_j == pytest.approx(120.0)
    assert found.event_count == {"failed": 1, "out_of_order": 1, "duplicate": 1, "gap": 1}


def test_a_window_beyond_the_readings_says_what_they_cover():
    found = energy_of(power(every(0.1, 11), [10.0] * 11), -1.0, 3.0)
    assert found.energy_j == pytest.approx(10.0)
    assert found.covered_s == pytest.approx(1.0)
    assert "cover 1 s of 4 s" in found.warnings[0]
    assert energy_of(power([], []), 0.0, 1.0).covered_s == 0


def test_few_readings_are_a_bound_and_no_value():
    assert energy_of(power(every(0.1, 9), [1.0] * 9), 0.0, 0.8).few
    assert not energy_of(power(every(0.1, 10), [1.0] * 10), 0.0, 0.9).few


@pytest.mark.parametrize(
    ("rollover", "expected", "events"), [(2**32 * 1e-6, 12.0, {"wrap": 1}), (None, 9.0, {"reset": 1})]
)
def test_a_counter_that_wraps_goes_on_and_one_that_is_reset_loses_that_interval(rollover, expected, events):
    top = 2**32 * 1e-6  # microjoules in 32 bits
    raw = [(top - 6.0 + 3.0 * step) % top if rollover else [0, 3, 6, 1, 4][step] for step in range(5)]
    found = energy_of(counter(every(1.0, 5), raw, rollover=rollover), 0.0, 4.0)
    assert found.energy_j == pytest.approx(expected)
    assert found.event_count == events
    assert increments([(0.0, 1.0), (1.0, 0.5)], None) == ([None], {"reset": 1})


def test_a_counter_that_may_have_gone_round_unseen_is_warned_of():
    found = energy_of(counter([0.0, 1.0, 2.0], [0.0, 60.0, 20.0], rollover=100.0), 0.0, 2.0)
    assert "wrapped unseen" in found.warnings[0]


def test_a_counter_is_bounded_by_its_step_and_its_period():
    times = every(0.01, 201)
    shown = [math.floor(t / 0.1 + 1e-9) * 0.1 * 300 for t in times]  # 300 W, shown every 100 ms
    found = energy_of(counter(times, shown, resolution=1e-3), 0.255, 1.745)
    assert found.low_j <= 300 * 1.49 <= found.high_j
    assert found.error_j < 0.2 * found.energy_j
    assert found.sample_count == 15


def test_a_load_that_repeats_faster_than_the_sampling_is_warned_of():
    draw = random.Random(3)
    times = [number + draw.uniform(0, 0.9) for number in range(300)]  # about once a second, with jitter
    pulsed = [40.0 if (t * 10) % 1 < 0.5 else 10.0 for t in times]  # ten times a second
    assert any("aliasing" in one for one in energy_of(power(times, pulsed), 0.0, 300.0).warnings)
    even = power(every(1.0, 300), [40.0] * 300)  # in step with the load, so that readings show nothing
    assert not energy_of(even, 0.0, 299.0).warnings
    assert "10 times a second" in energy_of(even, 0.0, 299.0, event_hz=10).warnings[0]


def test_a_counter_is_preferred_to_an_integral_and_both_are_given():
    times = every(0.1, 21)
    stream = Stream(
        source="gpu", channels=(power(times, []).channel, counter(times, []).channel),
        before_ns=tuple(int(t * 1e9) for t in times), after_ns=tuple(int(t * 1e9) for t in times),
        values=(tuple([30.0] * 21), tuple(30.0 * t for t in times)),
    )  # fmt: skip
    telemetry = Telemetry(
        begin_ns=0, end_ns=2 * 10**9, wall_ns=0, streams=(stream,), spans=(("samples", 5 * 10**8, 15 * 10**8),)
    )
    both = energies_of(telemetry, "samples")
    assert [one.method for one in both] == ["counter", "integral"]
    assert [one.energy_j for one in both] == pytest.approx([30.0, 30.0])
    assert [one.method for one in preferred(both)] == ["counter"]


@pytest.mark.parametrize("unit", ["celsius", "J"])
def test_only_power_and_counters_have_energy(unit):
    channel = Channel(name="x", unit=unit, kind="instantaneous", meaning="")
    with pytest.raises(SpecError, match="takes power"):
        energy_of(Series(source="t", channel=channel, times_s=[], doubts_s=[], values=[]), 0.0, 1.0)


def test_a_window_that_ends_before_it_begins_is_refused():
    with pytest.raises(SpecError, match="before it begins"):
        energy_of(power([0.0], [1.0]), 1.0, 0.0)
