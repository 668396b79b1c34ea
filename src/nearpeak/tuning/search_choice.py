"""Choice of the method that proposes configurations: a model, Optuna's samplers, or chance."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.tuning.legal_set import LegalSet
from nearpeak.tuning.model_search import ModelSearch
from nearpeak.tuning.optuna_search import OptunaSearch

AUTOMATIC = "auto"
"""`model` for one objective, `nsga2` for several."""


class Search(Protocol):
    """Something that proposes untried configurations by what it has been told of others; the same seed repeats it."""

    def propose(self) -> int:
        """Return the index of an untried configuration of the legal set."""
        ...

    def tell(self, index: int, *scores: float) -> None:
        """Take what a configuration reached in each objective, infinite where it failed."""
        ...


class RandomSearch:
    """Configurations in random order, without repetition: what other searches are compared with."""

    def __init__(self, legal: LegalSet, seed: int) -> None:
        """Draw the order."""
        self._order: Iterator[int] = iter(np.random.default_rng(seed).permutation(len(legal)).tolist())
        self._told = set[int]()

    def propose(self) -> int:
        """Return the next one."""
        return next(index for index in self._order if index not in self._told)

    def tell(self, index: int, *_: float) -> None:
        """Note that it is tried."""
        self._told.add(index)


SEARCHES: dict[str, Callable[[LegalSet, int, int], Search]] = {
    "model": lambda legal, seed, _: ModelSearch(legal, seed),
    "tpe": lambda legal, seed, count: OptunaSearch(legal, seed, sampler="tpe", objective_count=count),
    "nsga2": lambda legal, seed, count: OptunaSearch(legal, seed, sampler="nsga2", objective_count=count),
    "random": lambda legal, seed, _: RandomSearch(legal, seed),
}
"""Searches by name, from the legal set, a seed and the number of objectives."""


def search_name(name: str, objective_count: int = 1) -> str:
    """Return the name of a search, chosen by the number of objectives where it is `auto`.

    Raises:
        SpecError: there is no such search, or it takes one objective only.

    >>> search_name("auto"), search_name("auto", 2)
    ('model', 'nsga2')
    """
    if name == AUTOMATIC:
        return "model" if objective_count == 1 else "nsga2"
    if name not in SEARCHES:
        raise SpecError(f"--search {name!r}: there are {AUTOMATIC}, {', '.join(SEARCHES)}")
    if name == "model" and objective_count > 1:
        raise SpecError("--search model: takes one objective; tpe and nsga2 take several")
    return name
