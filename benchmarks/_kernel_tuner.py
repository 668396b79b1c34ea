"""The genetic algorithm of kernel_tuner with its defaults, on recorded spaces: the peer that a search is held against.

kernel_tuner is no dependency: where its package cannot be imported, nothing is measured.
"""

import random
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from math import isfinite
from typing import Any

import numpy as np

from nearpeak.core.tuning.space import Configuration
from nearpeak.tuning.recorded_space import RecordedSpace


def is_installed() -> bool:
    """Return whether kernel_tuner can be imported."""
    return find_spec("kernel_tuner") is not None


def genetic_counts(recorded: RecordedSpace, seeds: Sequence[int], margin_ratio: float = 0.05) -> Iterator[int | None]:
    """Yield for each seed the distinct configurations that it tries until one is within the margin of the best.

    Repeats are free, as the package keeps results; failed configurations count. None for a run that ends before.
    """
    from kernel_tuner.searchspace import Searchspace

    wanted_s = (1 + margin_ratio) * recorded.best_s
    parameters = {one.name: list(one.settings) for one in recorded.space.parameters}
    rows = {
        ",".join(map(str, one)): dict(zip(parameters, one, strict=True)) for one in recorded.space.listed
    }  # fmt: skip
    space = Searchspace(None, None, None, from_cache={"tune_params": parameters, "cache": rows})
    for seed in seeds:
        random.seed(seed)
        np.random.seed(seed)  # the package draws from the global generator
        yield _count(space, recorded, wanted_s)


def _count(space: Any, recorded: RecordedSpace, wanted_s: float) -> int | None:
    from kernel_tuner.interface import Options
    from kernel_tuner.strategies import genetic_algorithm
    from kernel_tuner.util import CompilationFailedConfig, StopCriterionReached

    tried = dict[Configuration, None]()

    class Recorded:
        """Runner that answers from the record."""

        def add_strategy_time(self, _: float) -> None:
            """Do nothing with the time of the search."""

        def run(self, configurations: Sequence[Sequence[Any]], _: Any) -> list[dict[str, Any]]:
            """Return the recorded times, and end the search at the first good one."""
            return [self._result(tuple(one)) for one in configurations]

        def _result(self, one: Configuration) -> dict[str, Any]:
            tried.setdefault(one)
            time_s = recorded.times[one].time_s
            if time_s <= wanted_s:
                raise StopCriterionReached("a configuration suffices")
            named = dict(zip(space.tune_params, one, strict=True))
            return named | ({"time": time_s} if isfinite(time_s) else {"__error__": CompilationFailedConfig()})

    class Unlimited:
        """Budget that never ends."""

        def raise_exception_if_done(self) -> None:
            """Go on."""

        def get_fraction_consumed(self) -> float:
            """Return that nothing is spent."""
            return 0.0

    options = Options(
        strategy_options=Options(), objective=["time"], objective_higher_is_better=[False], verbose=False,
        budget=Unlimited(),
    )  # fmt: skip
    genetic_algorithm.tune(space, Recorded(), options)
    last = next(reversed(tried))
    return len(tried) if recorded.times[last].time_s <= wanted_s else None
