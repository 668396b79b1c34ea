"""Replays: readers of recorded spaces, random search against its exact figures, the model against random search."""

import gzip
import itertools
import json
import math

import pytest
from tests.samples import SAMPLES, needs_samples
from tests.unit.tuning.planted import recorded_file, time_ms

from nearpeak.core.tuning.study import FAILED, STOPPED, TIMED
from nearpeak.errors import SpecError
from nearpeak.tuning.recorded_replay import (
    random_best_ratio,
    random_count,
    random_median,
    recorded_trial,
    replay,
)
from nearpeak.tuning.recorded_space import read_recorded_space


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return read_recorded_space(recorded_file(tmp_path_factory.mktemp("t4") / "planted.json.gz"))


def test_a_t4_file_gives_every_configuration_its_times_in_seconds(recorded):
    assert len(recorded.times) == 160
    assert sum(times.time_s == math.inf for times in recorded.times.values()) == 8
    for configuration, times in recorded.times.items():
        time = time_ms(*configuration)
        if time is not None:
            assert time * 1e-3 <= times.time_s <= 1.01 * time * 1e-3
            assert len(times.samples_s) == 32


def test_a_cache_of_kernel_tuner_is_read_with_failures_and_without_constants(tmp_path):
    rows = {
        "1,4": {"x": 1, "n": 4, "time": 2.0, "times": [2.0, 2.5]}, "2,4": {"x": 2, "n": 4, "time": 1.0},
        "3,4": {"x": 3, "n": 4, "time": "CompilationFailedConfig"},
    }  # fmt: skip
    path = tmp_path / "cache.json"
    path.write_text(json.dumps({"tune_params_keys": ["x", "n"], "cache": rows}))
    recorded = read_recorded_space(path)
    assert [parameter.name for parameter in recorded.space.parameters] == ["x"]
    assert recorded.times[(1,)].samples_s == (2e-3, 2.5e-3)
    assert recorded.times[(3,)].note == "CompilationFailedConfig"
    assert recorded.best_s == 1e-3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "is no recorded tuning space"),
        ('{"results": []}', "nothing to search"),
        ('{"results": [{"x": 1}]}', r"results\[0\]: cannot be read as configuration: it lacks 'configuration'"),
        ('{"results": [], "metadata": {"timeunit": "fortnights"}}', "timeunit is 'fortnights'"),
        ('{"results": [', "JSON|cannot be read"),
    ],
)
def test_files_that_are_no_space_are_one_line(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as raised:
        read_recorded_space(path)
    assert "\n" not in str(raised.value)


def test_the_exact_figures_of_random_search_are_those_of_all_orders():
    good, count = 2, 6
    firsts = [min(order.index(one) for one in range(good)) + 1 for order in itertools.permutations(range(count))]
    assert random_count(count, good) == pytest.approx(sum(firsts) / len(firsts))
    at_most = [sum(first <= n for first in firsts) / len(firsts) for n in range(count)]
    assert random_median(count, good) == next(n for n, share in enumerate(at_most) if share >= 0.5)
    times = [1.0, 1.5, 4.0, math.inf]
    draws = list(itertools.combinations(times, 2))
    assert random_best_ratio(times, 2) == pytest.approx(sum(1.0 / min(draw) for draw in draws) / len(draws))


def test_random_search_reaches_its_own_exact_figure(recorded):
    study = replay(recorded, "random", range(120), margin_ratio=0.2)
    counts = [run.found_count for run in study.runs]
    mean = random_count(study.legal_count, study.within_count)
    spread = mean / math.sqrt(len(counts))  # about that of a geometric distribution
    assert abs(sum(counts) / len(counts) - mean) < 4 * spread
    assert study.found_runs == 120


def test_the_model_needs_few_evaluations_and_repeats_itself(recorded):
    study = replay(recorded, "model", range(9))
    assert study.found_runs == 9
    assert study.median_count <= 0.6 * random_median(study.legal_count, study.within_count)
    assert study.device_ratio <= 0.3
    assert replay(recorded, "model", range(9)) == study


def test_stopping_early_never_stops_what_is_faster(recorded):
    best_s = recorded.best_s * 1.3
    for configuration, times in recorded.times.items():
        trial = recorded_trial(recorded, configuration, best_s)
        if not times.samples_s:
            assert trial.outcome == FAILED
            assert trial.score_s == math.inf
        elif times.time_s < best_s:
            assert trial.outcome == TIMED
        else:
            assert trial.outcome == STOPPED or times.time_s < 1.1 * best_s
            assert len(trial.samples_s) == 1 or times.time_s < 1.2 * best_s


@needs_samples
def test_on_a_recorded_gpu_the_model_needs_at_most_forty():
    path = SAMPLES / "kerneltuner" / "convolution_milo_A6000_original_T4.json.gz"
    if not path.is_file():
        pytest.skip("the recorded space is not there")
    study = replay(read_recorded_space(path), "model", range(10))
    assert (study.legal_count, study.within_count) == (2442, 14)
    assert study.median_count <= 40
    assert study.found_runs == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row["configuration"].pop("block"), "lacks 'block'"),
        (lambda row: row["configuration"].update(odd=1), "states 'odd'"),
        (lambda row: row["configuration"].update(block=[1]), r"'block' is \[1\]; a number"),
        (lambda row: row["configuration"].update(block=10**400), r"'block' is 10{39}… \(401 characters\)"),
        (lambda row: row.update(measurements=[]), "measures no time"),
        (lambda row: row["measurements"][0].update(value=10**400), "cannot be read as configuration: OverflowError"),
        (lambda row: row.update(times=None), ".*: it holds nothing where a table is right"),
    ],
)
def test_a_damaged_row_is_named(tmp_path, change, message):
    path = recorded_file(tmp_path / "planted.json.gz")
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data["results"][3])
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    with pytest.raises(SpecError, match=rf"planted\.json\.gz: results\[3\]: {message}") as raised:
        read_recorded_space(path)
    assert "\n" not in str(raised.value)
