"""Optuna's samplers on the legal set: only legal configurations, each once, the same by seed; the extra is named."""

import sys

import pytest
from tests.unit.tuning.planted import SPACE, time_ms

from nearpeak.errors import MissingExtraError
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.optuna_search import OptunaSearch


def run(sampler, count, seed=0):
    legal = legal_set(SPACE)
    search, indices = OptunaSearch(legal, seed, sampler=sampler), []
    for _ in range(count):
        index = search.propose()
        indices.append(index)
        search.tell(index, time_ms(*legal.configuration(index)) or float("inf"))
    return indices


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_samplers_propose_untried_legal_configurations_and_repeat_themselves(sampler):
    pytest.importorskip("optuna")
    indices = run(sampler, 30)
    assert len(set(indices)) == 30
    assert run(sampler, 30) == indices
    assert run(sampler, 30, seed=1) != indices


def test_two_objectives_are_searched_too():
    pytest.importorskip("optuna")
    legal = legal_set(SPACE)
    search = OptunaSearch(legal, 0, sampler="nsga2", objective_count=2)
    for _ in range(20):
        index = search.propose()
        search.tell(index, float(index), float(-index))


def test_without_optuna_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"--search tpe: needs Optuna; pip install 'nearpeak\[tuning\]'"):
        OptunaSearch(legal_set(SPACE), 0, sampler="tpe")
