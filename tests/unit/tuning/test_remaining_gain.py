"""Expected remaining gain: against drawn populations, monotone in what is left, and silent where little was seen."""

import random
import statistics

import pytest
from tests.unit.tuning.planted import SPACE, recorded_file, time_ms

from nearpeak.core.tuning.study import TIMED, Trial
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.recorded_replay import replay
from nearpeak.tuning.recorded_space import read_recorded_space
from nearpeak.tuning.remaining_gain import LEAST_COUNT, remaining_gain_ratio
from nearpeak.tuning.search_choice import SEARCHES
from nearpeak.tuning.study_journal import StudyJournal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials


@pytest.mark.parametrize("power", [2.0, 4.0, 8.0])
def test_the_expected_gain_of_random_draws_is_that_of_the_population(power):
    """Times 1 + u^(1/power): a tail with an end, of which `power` says how thin it is."""
    draw, expected, real = random.Random(3), [], []
    for _ in range(200):
        times = [1.0 + draw.random() ** (1 / power) for _ in range(400)]
        seen, left = times[:100], times[100:]
        expected.append(remaining_gain_ratio(seen, len(left)))
        real.append(max(0.0, 1 - min(left) / min(seen)))
    assert 0.7 * statistics.fmean(real) < statistics.fmean(expected) < 3 * statistics.fmean(real)


def test_more_left_is_more_to_gain_and_few_times_say_nothing():
    times = [1.0 + 0.01 * number**1.5 for number in range(60)]
    gains = [remaining_gain_ratio(times, left) for left in (0, 10, 100, 1000, 100_000)]
    assert gains == sorted(gains)
    assert gains[0] == 0.0 < gains[1]
    assert gains[-1] < 1.0
    assert remaining_gain_ratio(times[: LEAST_COUNT - 1], 100) is None
    assert remaining_gain_ratio([1.0] * LEAST_COUNT, 100) == 0.0


def test_the_unit_of_time_changes_nothing():
    times = [1.0 + 0.01 * number**1.5 for number in range(60)]
    assert remaining_gain_ratio([1e-6 * time for time in times], 500) == pytest.approx(remaining_gain_ratio(times, 500))


def test_a_search_ends_where_little_is_left_and_says_so():
    legal = legal_set(SPACE)

    def evaluate(configuration, _):
        time = time_ms(*configuration) or 9.0
        return Trial(position=0, settings=SPACE.named(configuration), outcome=TIMED, time_s=time, samples_s=(time,))

    journal = StudyJournal(None, None, {})
    limits = SearchLimits(trial_count=160, least_gain_ratio=0.2)
    reason = search_trials(legal, SEARCHES["random"](legal, 0, 1), evaluate, limits, journal)
    assert LEAST_COUNT <= len(journal.trials) < 160
    assert f"the {160 - len(journal.trials)} configurations left are expected to gain " in reason
    assert reason.endswith("less than 20 %")


def test_a_replay_says_what_the_stop_costs_beside_as_many_random_draws(tmp_path):
    recorded = read_recorded_space(recorded_file(tmp_path / "planted.json.gz"))
    study = replay(recorded, "random", range(10), least_gain_ratio=0.05, most_count=160)
    assert all(run.run_count < 160 for run in study.runs)
    assert study.speed_ratio == pytest.approx(study.random_speed_ratio, abs=0.1)
    assert study.record()["speed_ratio"] == study.speed_ratio
