"""Search by a Gaussian process over the legal set: the untried configuration with most expected improvement is next."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearpeak.ops.shared.reference.error_functions import erfc
from nearpeak.tuning.legal_set import LegalSet

START_COUNT = 10
"""Random configurations before the model proposes any."""
POOL_COUNT = 20_000
"""Most candidates that the model looks at; of larger sets a random part and the neighbours of the best."""
MOST_OBSERVED = 600
"""Most trials that the model is fitted to: the best half, and the latest others."""
NOISE_RATIO = 1e-3
"""Variance of a time's logarithm that the model leaves unexplained, over the variance that it explains."""
_GROWTH_RATIO = 1.25
"""Growth of the trials after which the lengths of the model are fitted again."""
_STEPS = (0.3, 3.0)
"""Factors by which the fit tries to change the inverse length of a parameter."""
_LEAST, _MOST = 0.01, 30.0
"""Range of inverse lengths, over the whole range of a parameter's values."""
Matrix = NDArray[np.floating[Any]]


class ModelSearch:
    """Bayesian optimisation on a finite set: log time is a Gaussian process with kernel exp(-Σ |x_p - y_p| w_p).

    x_p is the place of a value among those of its parameter, scaled to 0…1; the weights w_p maximise the marginal
    likelihood by coordinate steps. Expected improvement chooses.

    Source: Jones, Schonlau, Welch 1998, J. Global Optim. 13, 455 (expected improvement); Rasmussen and Williams 2006,
    eq. 2.25, 5.8.
    """

    def __init__(self, legal: LegalSet, seed: int) -> None:
        """Draw the first configurations."""
        self._legal, self._random = legal, np.random.default_rng(seed)
        self._start = self._random.permutation(len(legal))[:START_COUNT].tolist()
        self._weights: Matrix = np.ones(legal.unit.shape[1])
        self._seen = np.zeros(len(legal), dtype=bool)
        self._indices: list[int] = []
        self._scores: list[float] = []
        self._fitted_count = 0
        self._process: _Process | None = None

    def propose(self) -> int:
        """Return the index of an untried configuration."""
        while self._start:
            index = int(self._start.pop(0))
            if not self._seen[index]:
                return index
        if self._process is None or len(self._indices) >= self._fitted_count * _GROWTH_RATIO + 2:
            self._process = self._fitted()
        gain = self._process.expected_improvement(_levels(self._scores, self._process.kept))
        gain[self._seen[self._process.pool]] = -1.0
        if gain.max() < 0:
            return int(np.flatnonzero(~self._seen)[0])
        return int(self._process.pool[int(np.argmax(gain))])

    def tell(self, index: int, *scores: float) -> None:
        """Take the time of a configuration, infinite for one that failed."""
        self._seen[index] = True
        self._indices.append(index)
        self._scores.append(scores[0])
        if self._process is not None:
            self._process.add(self._legal.unit[index], len(self._scores) - 1)

    def _fitted(self) -> "_Process":
        """Return the process with weights fitted to the trials until now."""
        scores = np.array(self._scores)
        observed = np.arange(len(scores))
        if len(observed) > MOST_OBSERVED:
            best = np.argsort(scores, kind="stable")[: MOST_OBSERVED // 2]
            observed = np.unique(np.concatenate([best, observed[-MOST_OBSERVED // 2 :]]))
        points, levels = self._legal.unit[np.array(self._indices)[observed]], _levels(self._scores, observed.tolist())
        self._weights = _fitted_weights(self._weights, lambda weights: _likelihood(points, levels, weights))
        self._fitted_count = len(self._indices)
        pool = self._pool(scores)
        return _Process(self._weights, (points, observed.tolist()), self._legal.unit[pool], pool)

    def _pool(self, scores: Matrix) -> NDArray[np.int64]:
        """Return the candidates: all, or of a large set a random part and the neighbours of the best."""
        count = len(self._legal)
        if count <= POOL_COUNT:
            return np.arange(count)
        best = [self._indices[place] for place in np.argsort(scores, kind="stable")[:5]]
        near = [np.flatnonzero((self._legal.places != self._legal.places[index]).sum(axis=1) <= 1) for index in best]
        return np.unique(np.concatenate([self._random.permutation(count)[:POOL_COUNT], *near]))


class _Process:
    """Posterior over the candidates, extended by one observation at a time through a Cholesky factor."""

    def __init__(
        self, weights: Matrix, observed: tuple[Matrix, list[int]], candidates: Matrix, pool: NDArray[np.int64]
    ) -> None:
        self._weights, self._candidates, self.pool = weights, candidates, pool
        self._points, self.kept = observed[0], list(observed[1])
        self._factor = np.linalg.cholesky(_covariance(self._points, weights))
        self._half = _solved(self._factor, _kernel(self._points, candidates, weights))
        self._variance = 1 - (self._half**2).sum(axis=0)

    def add(self, point: Matrix, place: int) -> None:
        """Condition on one more point: a row of the Cholesky factor, and of its product with the candidates."""
        points = point[None, :]
        row = _solved(self._factor, _kernel(points, self._points, self._weights)[0])
        rest = math.sqrt(max(1 + NOISE_RATIO - float(row @ row), 1e-9))
        beside = (_kernel(points, self._candidates, self._weights) - row @ self._half) / rest
        wider = np.pad(self._factor, ((0, 1), (0, 1)))
        wider[-1] = (*row, rest)
        self._factor, self._half = wider, np.vstack([self._half, beside])
        self._variance -= beside[0] ** 2
        self._points = np.vstack([self._points, points])
        self.kept.append(place)

    def expected_improvement(self, levels: Matrix) -> Matrix:
        """Return for each candidate how far below the best it is expected to come, at least 0."""
        centred = levels - levels.mean()
        solved = _solved(self._factor, centred)
        scale = math.sqrt(max(float(solved @ solved) / len(levels), 1e-18))
        mean = solved @ self._half
        spread = scale * np.sqrt(np.maximum(self._variance, 1e-12))
        step = (float(centred.min()) - mean) / spread
        density = np.exp(-step * step / 2) / math.sqrt(2 * math.pi)
        gain: Matrix = np.maximum(spread * (step * erfc(-step / math.sqrt(2)) / 2 + density), 0.0)
        return gain


def _levels(scores: list[float], observed: list[int]) -> Matrix:
    """Return logarithms of times; slow and failed ones are cut at as far above the median as the best lies below it.

    What is slow needs no accurate model, and its spread would hide differences between fast configurations.
    """
    times = np.array(scores)[observed]
    finite = np.isfinite(times)
    if not finite.any():
        return np.zeros(len(times))
    levels = np.full(len(times), np.inf)
    levels[finite] = np.log(times[finite])
    middle = float(np.median(levels[finite]))
    cut: Matrix = np.minimum(levels, middle + (middle - float(levels[finite].min())) + 1e-9)
    return cut


def _kernel(left: Matrix, right: Matrix, weights: Matrix) -> Matrix:
    distance = np.zeros((len(left), len(right)))
    for place, weight in enumerate(weights):
        distance += weight * np.abs(left[:, place, None] - right[None, :, place])
    return np.exp(-distance)


def _covariance(points: Matrix, weights: Matrix) -> Matrix:
    return _kernel(points, points, weights) + NOISE_RATIO * np.eye(len(points))


def _likelihood(points: Matrix, levels: Matrix, weights: Matrix) -> float:
    """Return the logarithm of the marginal likelihood, its scale at the optimum, up to a constant."""
    factor = np.linalg.cholesky(_covariance(points, weights))
    solved = _solved(factor, levels - levels.mean())
    scale = max(float(solved @ solved) / len(levels), 1e-18)
    return -0.5 * len(levels) * math.log(scale) - float(np.log(np.diag(factor)).sum())


def _fitted_weights(weights: Matrix, likelihood: Callable[[Matrix], float]) -> Matrix:
    """Return weights after two rounds of steps in each coordinate that raise the likelihood."""
    best = likelihood(weights)
    for _ in range(2):
        for place in range(len(weights)):
            for step in _STEPS:
                tried = weights.copy()
                tried[place] = min(max(tried[place] * step, _LEAST), _MOST)
                value = likelihood(tried)
                if value > best + 1e-9:
                    best, weights = value, tried
    return weights


def _solved(factor: Matrix, right: Matrix) -> Matrix:
    """Return L⁻¹ b of a lower triangular factor."""
    solution: Matrix = np.linalg.solve(factor, right)
    return solution
