"""Published figures of language models in four modes of an Orin Nano: gating of multiprocessors, power, choice."""

import csv
import gzip
from collections import defaultdict

import numpy as np
import pytest
from tests.samples import SAMPLES

from nearpeak.systems.edge.mode_choice import energy_of_period
from nearpeak.systems.edge.mode_times import fitted_terms

FILE = SAMPLES.parent / "edge/measured.csv.gz"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the published figures of edge boards")
MODES = {"7W": (408, 4, 2133), "15W": (612, 8, 2133), "25W": (918, 8, 3199), "MAXN_SUPER": (1020, 8, 3199)}
"""Clock in MHz, multiprocessors and memory clock of each mode, as the mode files say."""


@pytest.fixture(scope="module")
def groups():
    found = defaultdict(dict)
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if "smolhub" in row["source"]:
                key = row["model"], row["runtime"].split()[0]
                found[key][row["power_mode"]] = (float(row["latency_ms"]) / 1e3, float(row["power_w"]))
    complete = {key: group for key, group in found.items() if set(group) == set(MODES)}
    assert len(complete) >= 8
    return complete


def rates(multiprocessors_in_7w):
    rows = [
        (clock * (multiprocessors_in_7w if mode == "7W" else count), memory)
        for mode, (clock, count, memory) in MODES.items()
    ]
    array = np.array(rows, dtype=float)
    return array.max(0) / array


def test_times_follow_the_multiprocessors_that_a_mode_leaves_on(groups):
    errors = {}
    for count in (4, 8):
        inverse = rates(count)
        logs = []
        for group in groups.values():
            times = np.array([group[mode][0] for mode in MODES])
            logs.extend(np.abs(inverse @ fitted_terms(inverse, times) / times - 1))
        errors[count] = float(np.mean(logs))
    assert errors[4] < 0.06
    assert errors[8] > 2 * errors[4]


def test_time_of_a_mode_from_the_other_three(groups):
    inverse = rates(4)
    errors = defaultdict(list)
    for group in groups.values():
        times = np.array([group[mode][0] for mode in MODES])
        for place, mode in enumerate(MODES):
            rest = [other for other in range(len(MODES)) if other != place]
            terms = fitted_terms(inverse[rest], times[rest])
            errors[mode].append(abs(inverse[place] @ terms / times[place] - 1))
    means = {mode: float(np.mean(values)) for mode, values in errors.items()}
    assert all(means[mode] < 0.13 for mode in ("15W", "25W", "MAXN_SUPER"))
    assert means["7W"] == max(means.values())  # extrapolated


def test_power_of_the_rail_follows_clock_times_multiprocessors(groups):
    pace = np.array([clock / 1e3 * count for clock, count, _ in MODES.values()]) ** 1.2
    errors = []
    for group in groups.values():
        powers = np.array([group[mode][1] for mode in MODES])
        factor = np.mean((powers - 1.25) / pace)
        errors.extend(np.abs((1.25 + factor * pace) / powers - 1))
    assert np.mean(errors) < 0.08


def test_25w_needs_least_energy_under_llama_cpp(groups):
    best = {}
    for (model, runtime), group in groups.items():
        energies = {mode: energy_of_period(*figure) for mode, figure in group.items()}
        best[model, runtime] = min(energies, key=energies.get)
    assert {mode for (_, runtime), mode in best.items() if runtime == "llama.cpp"} == {"25W"}
