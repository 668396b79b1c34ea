"""The model: its posterior against the textbook formula, and large legal sets."""

import numpy as np

from nearpeak.core.tuning.space import Parameter, TuningSpace
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.model_search import NOISE_RATIO, POOL_COUNT, ModelSearch, _covariance, _kernel, _Process


def test_a_posterior_built_point_by_point_is_that_of_all_points_at_once():
    random = np.random.default_rng(0)
    points, candidates, weights = random.random((12, 3)), random.random((40, 3)), np.array([0.5, 2.0, 8.0])
    process = _Process(weights, (points[:5], [0, 1, 2, 3, 4]), candidates, np.arange(40))
    for place in range(5, 12):
        process.add(points[place], place)
    inverse = np.linalg.inv(_covariance(points, weights))
    across = _kernel(points, candidates, weights)
    assert np.allclose(process._variance, 1 - np.einsum("ij,ik,kj->j", across, inverse, across), atol=1e-9)
    levels = random.random(12)
    whole = _Process(weights, (points, list(range(12))), candidates, np.arange(40))
    assert np.allclose(process.expected_improvement(levels), whole.expected_improvement(levels), atol=1e-9)
    assert NOISE_RATIO > 0


def test_a_set_larger_than_the_pool_is_searched_near_the_best():
    names = [Parameter(name=f"p{place}", settings=tuple(range(8))) for place in range(5)]
    legal = legal_set(TuningSpace(name="large", parameters=tuple(names)))
    assert len(legal) == 8**5 > POOL_COUNT
    search, scores = ModelSearch(legal, 0), []
    for _ in range(45):
        index = search.propose()
        scores.append(1.0 + float(((legal.places[index] - 3) ** 2).sum()))
        search.tell(index, scores[-1])
    assert min(scores[:10]) > min(scores)
    assert min(scores) <= 2.0
    assert not np.isnan(search._weights).any()


def test_where_everything_fails_it_goes_on_to_the_end():
    legal = legal_set(TuningSpace(name="s", parameters=(Parameter(name="a", settings=tuple(range(15))),)))
    search, seen = ModelSearch(legal, 0), set()
    for _ in range(15):
        index = search.propose()
        seen.add(index)
        search.tell(index, float("inf"))
    assert seen == set(range(15))
