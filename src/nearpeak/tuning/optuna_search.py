"""Searches of Optuna, the tree-structured Parzen estimator and the genetic NSGA-II, kept to the legal set."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearpeak.errors import MissingExtraError
from nearpeak.tuning.legal_set import LegalSet

POPULATION_COUNT = 26
"""Population of the genetic search."""
MOST_REPEATED = 100
"""Repeated proposals that are answered from memory before the nearest untried configuration runs."""
_FAILED_RATIO = 10.0
"""Score of a failed configuration over the worst until then: samplers learn from numbers only."""


class OptunaSearch:
    """Ask and tell with one of Optuna's samplers; an illegal or repeated proposal becomes the nearest legal new one."""

    def __init__(self, legal: LegalSet, seed: int, *, sampler: str, objective_count: int = 1) -> None:
        """Start a study in memory.

        Args:
            sampler: `tpe` or `nsga2`.

        Raises:
            MissingExtraError: Optuna is not installed.
        """
        try:
            import optuna
        except ImportError:
            raise MissingExtraError(f"--search {sampler}: needs Optuna; pip install 'nearpeak[tuning]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = optuna.samplers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = (
                samplers.TPESampler(seed=seed, multivariate=True)
                if sampler == "tpe"
                else samplers.NSGAIISampler(population_size=POPULATION_COUNT, seed=seed)
            )
        self._study = optuna.create_study(directions=["minimize"] * objective_count, sampler=chosen)
        self._legal, self._seen, self._asked = legal, np.zeros(len(legal), dtype=bool), dict[int, Any]()
        self._known = dict[int, list[float]]()
        self._worst: list[float | None] = [None] * objective_count

    def propose(self) -> int:
        """Return the index of an untried configuration; a repeated proposal is answered from memory, a while."""
        trial, places = self._ask()
        for _ in range(MOST_REPEATED):
            index = self._legal.index_at(places)
            if index is None or index not in self._known:
                break
            self._study.tell(trial, self._known[index])
            trial, places = self._ask()
        index = self._legal.nearest_unseen(places, self._seen)
        self._asked[index] = trial
        return index

    def _ask(self) -> tuple[Any, list[int]]:
        """Return a trial with its places in the order of the values, so that the sampler sees neighbours."""
        trial = self._study.ask()
        parameters = self._legal.space.parameters
        return trial, [trial.suggest_int(parameter.name, 0, len(parameter.settings) - 1) for parameter in parameters]

    def tell(self, index: int, *scores: float) -> None:
        """Take what a configuration reached, infinite where it failed; what was proposed gets it too."""
        self._seen[index] = True
        self._known[index] = values = self._finite(scores)
        trial = self._asked.pop(index, None)
        if trial is not None:
            self._study.tell(trial, values)

    def _finite(self, scores: Sequence[float]) -> list[float]:
        """Return scores as samplers take them: a failure counts as much worse than the worst."""
        values = []
        for place, score in enumerate(scores):
            worst = self._worst[place]
            if np.isfinite(score):
                self._worst[place] = score if worst is None else max(worst, score)
            values.append(score if np.isfinite(score) else _FAILED_RATIO * (1.0 if worst is None else abs(worst)))
        return values
