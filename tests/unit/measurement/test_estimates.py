"""Estimates and the rules by which warm-up and sampling end."""

import itertools
import random
import statistics
from dataclasses import replace

import pytest

import nearpeak
from nearpeak.core.runs.estimate import estimate_of, median_ranks
from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import Prepared, Reading
from nearpeak.errors import SpecError
from nearpeak.measurement.timing import sampler
from nearpeak.measurement.timing.clocks import HostDefaults
from nearpeak.measurement.timing.sampler import converged, is_steady, sample


@pytest.mark.parametrize("draw", [
    lambda r: r.gauss(10, 1),
    lambda r: r.lognormvariate(0, 0.5),
    lambda r: r.gauss(1, 0.01) if r.random() < 0.7 else r.gauss(2, 0.01),
])  # fmt: skip
def test_the_interval_holds_the_median_in_95_of_100_cases(draw):
    random_ = random.Random(5)
    truth = statistics.median(draw(random_) for _ in range(100_001))
    held = sum(
        found.low_s <= truth <= found.high_s
        for found in (estimate_of([draw(random_) for _ in range(51)]) for _ in range(2000))
    )
    assert 0.93 <= held / 2000 <= 0.99


@pytest.mark.parametrize("samples", [[], [1.0, 0.0], [1.0, -1.0], [float("nan")], [float("inf")]])
def test_what_is_no_time_is_refused(samples):
    with pytest.raises(SpecError, match="estimate"):
        estimate_of(samples)


def test_samples_too_few_for_their_scatter_are_called_so_instead_of_given_a_width():
    from nearpeak.cli.run.measure import _row

    case = nearpeak.case("fill", elements=8, dtype="fp32")
    taken = Measurement(case=case, target="gpu", runner="r", samples_s=(1.0, 1.1, 0.9, 1.0, 57.0))
    assert _row(taken, None).endswith(
        ": 1 s ± unknown, too few samples (budget, 5 samples; a longer --budget takes more)"
    )
    enough = replace(taken, samples_s=(1.0, 1.1, 0.9, 1.0, 2.8))
    assert _row(enough, None).endswith(": 1 s ± 95.0% (budget, 5 samples)")
    assert not estimate_of([2.0]).is_known


def test_one_sample_is_its_own_interval_and_never_converged():
    found = estimate_of([2.0])
    assert (found.centre_s, found.low_s, found.high_s, found.sample_count) == (2.0, 2.0, 2.0, 1)
    assert not converged([2.0], 0.5)


def test_a_few_equal_samples_do_not_count_as_converged():
    fewest = next(n for n in range(1, 50) if converged([1.0] * n, 0.005))
    low, high = median_ranks(fewest)
    assert 0 < low < high < fewest - 1


@pytest.mark.parametrize(("before", "after", "agree"), [
    ([1.0, 1.01, 0.99, 1.0, 1.0], [1.0, 1.0, 0.99, 1.01, 1.0], True),
    ([1.0, 1.01, 0.99, 1.0, 1.0], [5.0, 1.0, 0.99, 1.01, 1.0], False),
    ([3.0, 3.0, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0, 1.0], False),
    ([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.2, 1.2, 1.2, 1.2], False),
])  # fmt: skip
def test_warm_up_ends_when_two_windows_agree(before, after, agree):
    assert is_steady([9.0, *before, *after]) is agree
    assert not is_steady(after)


class Scripted(HostDefaults):
    """A device whose times are written down."""

    name, mode, resolution_s = "scripted", "device", 1e-9

    def __init__(self, times_s):
        self.times_s, self.flushes = iter(times_s), 0

    def read(self, run, call_count):
        time_s = next(self.times_s)
        return Reading(time_s=time_s * call_count, cpu_s=0.0, host_s=time_s * call_count + 1e-6, result=run())

    def flush(self):
        self.flushes += 1


READY = Prepared(runs=(lambda: "a", lambda: "b"), outputs=dict)


def test_cold_samples_are_single_calls_each_after_a_flush_and_none_is_dropped():
    times = [0.5, 0.4] + [0.3, 0.2, 0.1] + [0.01] * 500
    timer = Scripted(times)
    found = sample(READY, timer, Timing(cache="cold", budget_s=30.0))
    taken = found.warmup_s + found.samples_s
    assert (found.call_count, found.outcome) == (1, Outcome.CONVERGED)
    assert taken == tuple(times[2 : 2 + len(taken)])
    assert timer.flushes == len(taken)
    assert set(found.samples_s) == {0.01}
    assert len(found.host_samples_s) == len(found.samples_s)


def test_times_that_never_settle_end_with_the_budget():
    noise = random.Random(1)
    timer = Scripted(noise.uniform(1.0, 2.0) for _ in iter(int, 1))
    found = sample(READY, timer, Timing(cache="cold", budget_s=0.01))
    assert found.outcome is Outcome.BUDGET
    assert len(found.samples_s) >= Timing().least_count


def test_short_hot_calls_are_timed_in_batches():
    timer = Scripted(1e-7 for _ in iter(int, 1))
    found = sample(READY, timer, Timing(cache="hot", budget_s=0.01))
    assert found.call_count * 1e-7 >= 1e-4
    assert found.samples_s[0] == pytest.approx(1e-7)


def test_a_slow_stretch_at_the_start_of_a_host_does_not_pass_for_the_case(monkeypatch):
    timer = Scripted([0.0013] * 100 + [0.001] * 1000)
    monkeypatch.setattr(timer, "mode", "host", raising=False)
    spent = itertools.count()
    monkeypatch.setattr(sampler, "_PROCESS_S", lambda: next(spent) * 1e-3)
    found = sample(READY, timer, Timing(cache="cold", budget_s=0.4))
    assert found.outcome is Outcome.CONVERGED
    assert statistics.median(found.samples_s) == 0.001
