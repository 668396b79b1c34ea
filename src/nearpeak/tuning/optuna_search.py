"""Searches of Optuna, the tree-structured Parzen estimator and the genetic NSGA-II, kept to the legal set."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearpeak.errors import MissingExtraError
from nearpeak.tuning.legal_set import LegalSet

POPULATION_COUNT = 26
"""Population of the genetic search."""
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
        self._worst = [1.0] * objective_count

    def propose(self) -> int:
        """Return the index of an untried configuration."""
        trial = self._study.ask()
        # Places are told in the order of the values, so that the sampler sees neighbours.
        places = [
            trial.suggest_int(parameter.name, 0, len(parameter.settings) - 1)
            for parameter in self._legal.space.parameters
        ]
        index = self._legal.nearest_unseen(places, self._seen)
        self._asked[index] = trial, places
        return index

    def tell(self, index: int, *scores: float) -> None:
        """Take what a configuration reached, infinite where it failed."""
        self._seen[index] = True
        values = self._finite(scores)
        trial, places = self._asked.pop(index, (None, None))
        if trial is not None and places == self._legal.places[index].tolist():
            self._study.tell(trial, values)
            return
        # The sampler proposed something else: it learns of the configuration that ran instead.
        import optuna

        if trial is not None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        parameters = self._legal.space.parameters
        ranges = {
            parameter.name: optuna.distributions.IntDistribution(0, len(parameter.settings) - 1)
            for parameter in parameters
        }
        ran = {
            parameter.name: int(place) for parameter, place in zip(parameters, self._legal.places[index], strict=True)
        }
        self._study.add_trial(optuna.trial.create_trial(params=ran, distributions=ranges, values=values))

    def _finite(self, scores: Sequence[float]) -> list[float]:
        values = []
        for place, score in enumerate(scores):
            if np.isfinite(score):
                self._worst[place] = max(self._worst[place], score) if self._asked else score
            values.append(score if np.isfinite(score) else _FAILED_RATIO * self._worst[place])
        return values
