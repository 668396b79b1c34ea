"""A tuning study: every configuration that was tried, what became of it, and the configuration that won."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from nearpeak.core.records.record_codec import Codec, Schema
from nearpeak.core.tuning.space import Setting

TIMED, STOPPED, PRUNED = "timed", "stopped", "cannot win"
WRONG, FAILED, ABSENT = "wrong", "failed", "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One configuration that was tried."""

    position: int
    """Place in the order of trials, from 1."""
    settings: Mapping[str, Setting]
    """Value of each parameter."""
    outcome: str
    """`timed`, `stopped` (slower after few calls), `cannot win` (by its bound), `wrong` or `failed`."""
    time_s: float | None = None
    """Time of one call: the median of its samples; none where there are none."""
    samples_s: tuple[float, ...] = ()
    """Time of each call that was made."""
    bound_s: float = 0.0
    """Proved lower bound of this configuration; 0 where the space states none."""
    spent_s: float = 0.0
    """Wall time that the trial took, with compilation and checks."""
    note: str = ""
    """Reason for having no time, or why it was stopped."""
    values: Mapping[str, float] = field(default_factory=dict)
    """What it reached in each objective, where a function evaluates configurations; smaller is better."""

    @property
    def score_s(self) -> float:
        """Time that the search is told: infinite for a configuration that must not win."""
        return self.time_s if self.time_s is not None and self.outcome in (TIMED, STOPPED) else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A finalist against the configuration that led until then, in interleaved pairs of fresh processes."""

    champion: Mapping[str, Setting]
    """Configuration that led."""
    challenger: Mapping[str, Setting]
    """The finalist."""
    verdict: str
    """`improvement`, `invariant`, `regression`, `inconclusive`, or why the challenger is out."""
    time_ratio: float | None
    """Challenger over champion; none where there was no comparison."""
    low_ratio: float | None = None
    """Lower end of the interval."""
    high_ratio: float | None = None
    """Upper end."""
    search_ratio: float | None = None
    """The same ratio by the samples of the search, whose best are the luckiest ones."""
    note: str = ""
    """Reason for having no ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a search over a space has found."""

    space: str
    """Name of the space."""
    subject: str
    """Case, recorded file or function that was tuned."""
    runner: str
    """Runner with its function; empty where none ran."""
    search: str
    """Method that proposed configurations."""
    seed: int
    """Seed of the search."""
    combination_count: int
    """Combinations of values."""
    legal_count: int
    """Configurations that fulfil the constraints."""
    trials: tuple[Trial, ...]
    """Trials in order."""
    stop_reason: str
    """Why the search ended; empty while it goes on."""
    default: Mapping[str, Setting] | None = None
    """Configuration in use today."""
    achievable_s: float | None = None
    """Time that good software is expected to reach; none where nothing predicts it."""
    achievable_low_s: float | None = None
    """Lower end of its interval."""
    bound_s: float | None = None
    """Time that nothing can beat on this device."""
    contests: tuple[Contest, ...] = ()
    """Final comparisons in order."""
    winner: Mapping[str, Setting] | None = None
    """Configuration proved faster than the default in pairs; none where there is no such."""
    objectives: tuple[str, ...] = ()
    """Names of what is minimised, where a function evaluates configurations."""

    @property
    def best(self) -> Trial | None:
        """Trial with the least time of the search; none where every one failed."""
        timed = [trial for trial in self.trials if trial.score_s < inf]
        return min(timed, key=lambda trial: trial.score_s, default=None)

    @property
    def leader(self) -> Mapping[str, Setting] | None:
        """Configuration to use after the study: the winner, else what is in use, else the fastest without finals."""
        if self.winner is not None or self.contests:
            return self.winner or self.default
        return None if self.best is None else self.best.settings

    @property
    def front(self) -> tuple[Trial, ...]:
        """Trials that no other beats in one objective and equals in the rest."""
        trials = {trial.position: trial for trial in self.trials if trial.values}
        rows = {place: tuple(trial.values[name] for name in self.objectives) for place, trial in trials.items()}
        beaten = {
            place
            for place, row in rows.items()
            for other in rows.values()
            if other != row and all(left <= right for left, right in zip(other, row, strict=True))
        }
        return tuple(trial for place, trial in trials.items() if place not in beaten)

    def count_of(self, outcome: str) -> int:
        """Return how many trials ended so."""
        return sum(trial.outcome == outcome for trial in self.trials)

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        best = self.best
        places = {"best": None if best is None else best.position, "front": [trial.position for trial in self.front]}
        plain: dict[str, Any] = STUDIES.plain(self)
        return STUDY.head() | plain | places


STUDIES = Codec()
"""Codec of studies."""
STUDY = Schema(
    kind="nearpeak tuning study", version=1, title="a saved tuning study", advice="write it with nearpeak tune --json"
)
"""Kind and version of saved studies."""
