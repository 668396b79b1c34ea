"""Bisection under noise: finds the slow change over commits, components and driver from comparisons that may err."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearpeak.errors import SpecError

Measure = Callable[[Mapping[str, str], Mapping[str, str]], float | None]
"""Runs baseline and candidate (version by axis) in turns A B B A: the ratio of their times; none if one cannot run."""
SURE_RATIO = 0.995
"""Chance of one culprit at which the search ends."""
WRONG_RATIO = 0.01
"""Share of comparisons without information: a disturbed device, a build with other inputs."""
WHOLE_RATIO = 0.8
"""A culprit that explains less of the slowdown is not the only one."""
PARENT_REPEATS = 3
"""Comparisons with its parent that a culprit gets when it seems to explain too little."""
MOST_STEPS = 20
PART_SIGMA = 3.0
"""How far from all and from nothing a slowdown must be to count as a part of it."""
LEAST_PART = 0.25
"""Part of the slowdown that a culprit must show; with less there is none."""
FOUND, LIKELY, NOT_THERE = "found", "likely", "not-there"
"""The culprit is sure; the budget ended before it was; good and bad do not differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectAxis:
    """Versions of one thing that differs between good and bad, in order."""

    name: str
    """`commit`, the name of a component, `driver`, …."""
    versions: tuple[str, ...]
    """From the good version, the first, to the bad one, the last."""
    weight_ratio: float = 1.0
    """How likely the culprit is here before anything is measured, against the other axes, for each version."""

    def __post_init__(self) -> None:
        """Refuse an axis on which nothing changes."""
        if len(self.versions) < 2 or len(set(self.versions)) < len(self.versions):
            raise SpecError(
                f"bisect: axis {self.name!r} needs two versions or more, each once; got {self.versions[:4]}"
            )
        if not 0 < self.weight_ratio < float("inf"):
            raise SpecError(f"bisect: axis {self.name!r}: weight {self.weight_ratio!r} is not positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """One change between neighbouring versions, and what it costs."""

    axis: str
    """Axis of the change."""
    before: str
    """Last version without it."""
    after: str
    """First version with it."""
    time_ratio: float
    """Time with it over time without."""
    probability_ratio: float
    """Chance that it is this one, given all comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """One comparison A B B A."""

    baseline: Mapping[str, str]
    """Version on each axis of the first arm."""
    candidate: Mapping[str, str]
    """Version on each axis of the second."""
    time_ratio: float | None
    """Candidate over baseline; none where it could not be built or run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """Result of a search with its comparisons."""

    outcome: str
    """`found`, `likely` or `not-there`."""
    culprits: tuple[Culprit, ...]
    """Causes, the first found first."""
    steps: tuple[BisectStep, ...]
    """Every comparison in order, those that could not run among them."""


def bisected(
    axes: Sequence[BisectAxis],
    time_ratio: float,
    spread_ratio: float,
    measure: Measure,
    *,
    most_steps: int = MOST_STEPS,
    most_causes: int = 2,
) -> Bisection:
    """Return the change (or changes) between neighbouring versions that makes bad slower than good.

    Every change of every axis is a suspect with a chance. A probe takes axes in their order as bad, one in part, the
    rest as good (so that a driver, given last, is exchanged last), cut where half of the chance lies; Bayes' rule takes
    its noise into account, so that an ambiguous step costs another one and never the answer. What cannot be built is
    passed by. A culprit is held against its parent; one that explains less than 80 % of the slowdown is set aside, and
    the rest is searched with all that is known.

    Args:
        time_ratio: bad over good, as the comparison that raised the alarm saw it.
        spread_ratio: standard deviation of the logarithm of one comparison's ratio.
        most_steps: comparisons for all causes together; twice as many for two.

    Raises:
        SpecError: no axis, a name twice, a ratio that says nothing changed, a spread that is not positive.

    Source: Burnashev and Zigangirov 1974, Problems of Information Transmission 10(3): search with noisy answers.

    >>> axes = [BisectAxis(name="commit", versions=("a", "b", "c", "d"))]
    >>> cost = {"a": 1.0, "b": 1.0, "c": 1.05, "d": 1.05}
    >>> found = bisected(axes, 1.05, 0.001, lambda good, bad: cost[bad["commit"]] / cost[good["commit"]])
    >>> found.outcome, found.culprits[0].after, len(found.steps)
    ('found', 'c', 3)
    """
    _check(axes, time_ratio, spread_ratio)
    search = _Search(axes, math.log(time_ratio), spread_ratio, measure)
    for _ in range(most_causes):
        search.look(most_steps)
        if not search.add_culprit(most_steps) or search.explained(search.rest):
            break
    return search.result()


def _check(axes: Sequence[BisectAxis], time_ratio: float, spread_ratio: float) -> None:
    if not axes or len({axis.name for axis in axes}) < len(axes):
        raise SpecError(f"bisect: axes {[axis.name for axis in axes]}; at least one is needed, each once")
    if not (math.isfinite(time_ratio) and time_ratio > 0) or time_ratio == 1:
        raise SpecError(f"bisect: time ratio {time_ratio!r}; good and bad must differ, e.g. 1.05")
    if not (math.isfinite(spread_ratio) and spread_ratio > 0):
        raise SpecError(f"bisect: spread {spread_ratio!r} of one comparison is not positive and finite; e.g. 0.01")


class _Search:
    """The suspects in the order of the axes, what was seen, and what is known of them.

    A place is the number of suspects that are in: place 0 is good, the last place bad, and the suspect that place `p`
    adds to place `p - 1` is number `p - 1`.
    """

    def __init__(self, axes: Sequence[BisectAxis], total: float, spread: float, measure: Measure) -> None:
        self.axes, self.total, self.spread, self.measure = tuple(axes), total, spread, measure
        self.seen: list[tuple[int, int, float]] = []  # base, candidate, logarithm of the ratio
        self.steps: list[BisectStep] = []
        self.culprits: list[tuple[int, float, float]] = []  # suspect, effect, chance
        self.broken: set[int] = set()
        self.there, self.sure = True, False
        self.size, self.scope = total, 0  # slowdown that is looked for, and among how many of the first suspects

    @property
    def suspects(self) -> list[tuple[int, int]]:
        """Axis and first bad version of every change."""
        return [(a, v) for a, axis in enumerate(self.axes) for v in range(1, len(axis.versions))]

    @property
    def rest(self) -> float:
        """Slowdown that no culprit explains yet."""
        return self.total - sum(effect for _, effect, _ in self.culprits)

    def look(self, most_steps: int) -> None:
        """Compare until one suspect is sure and was held against its parent, or the steps are used up."""
        tried: set[int] = set()
        self.sure, self.size, self.scope = False, self.rest, len(self.suspects)
        while len(self.steps) < most_steps:
            chance = self.chance()
            best = int(np.argmax(chance))
            if chance[best] >= SURE_RATIO:
                if best in tried or not self._compare(best, best + 1):
                    self.sure = True
                    return
                tried.add(best)
            elif (cut := self._cut(chance)) is None:
                return
            else:
                self._compare(0, cut)
                self._narrow(cut)

    def chance(self) -> NDArray[np.float64]:
        """Return the chance of every suspect, given all comparisons and the culprits known."""
        suspects = self.suspects
        number = np.arange(len(suspects))
        logs = np.log([self.axes[a].weight_ratio for a, _ in suspects])
        for base, candidate, value in self.seen:
            if candidate > self.scope:  # what lies beyond has causes of its own
                continue
            known = sum(effect for i, effect, _ in self.culprits if base <= i < candidate)
            z = (value - known - self.size * ((base <= number) & (number < candidate))) / self.spread
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            # A comparison that went wrong may show anything up to twice the slowdown.
            logs += np.log((1 - WRONG_RATIO) * density + WRONG_RATIO * self.spread / (4 * abs(self.total)))
        logs[[i for i, _, _ in self.culprits]] = -np.inf
        logs[self.scope :] = -np.inf
        chance = np.exp(logs - logs.max())
        return np.asarray(chance / chance.sum())

    def _narrow(self, cut: int) -> None:
        """Look for a part of the slowdown before `cut` where comparisons show a part of it there.

        The first of them is left out: it is because it was ambiguous that there are more.
        """
        known = sum(effect for i, effect, _ in self.culprits if i < cut)
        values = [value - known for base, candidate, value in self.seen if (base, candidate) == (0, cut)][1:]
        if len(values) < 2:
            return
        middle, reach = float(np.mean(values)), PART_SIGMA * self.spread / math.sqrt(len(values))
        if min(middle / self.size, 1 - middle / self.size) * abs(self.size) > reach:
            self.scope, self.size = cut, middle

    def _cut(self, chance: NDArray[np.float64]) -> int | None:
        """Return the buildable place that halves the chance best; none where no place tells suspects apart."""
        below = np.cumsum(chance)
        for suspect in np.argsort(np.abs(below - 0.5), kind="stable").tolist():
            if not 1e-4 < below[suspect] < 1 - 1e-4:
                return None
            if suspect + 1 not in self.broken:
                return int(suspect) + 1
        return None

    def _compare(self, base: int, candidate: int) -> bool:
        """Measure one comparison and keep it; say whether it could run."""
        names = self._versions(base), self._versions(candidate)
        ratio = self.measure(*names)
        if ratio is None or not (math.isfinite(ratio) and ratio > 0):
            ratio = None
            self.broken |= {base, candidate} - {0}
        else:
            self.seen.append((base, candidate, math.log(ratio)))
        self.steps.append(BisectStep(baseline=names[0], candidate=names[1], time_ratio=ratio))
        return ratio is not None

    def _versions(self, place: int) -> dict[str, str]:
        """Return the version on every axis: axes before are bad, one is in part, the rest good."""
        versions = {}
        for axis in self.axes:
            taken = min(place, len(axis.versions) - 1)
            versions[axis.name] = axis.versions[taken]
            place -= taken
        return versions

    def explained(self, rest: float) -> bool:
        """Return whether what is left needs no other cause."""
        return abs(rest) <= (1 - WHOLE_RATIO) * abs(self.total)

    def add_culprit(self, most_steps: int) -> bool:
        """Take the likeliest suspect for a culprit with the effect that was seen; say whether it is sure."""
        chance = self.chance()
        best = int(np.argmax(chance))
        effect = self._effect(best)
        # One comparison that came out small must not start the search for a second cause.
        for _ in range(PARENT_REPEATS):
            if not self.sure or self.explained(self.rest - effect) or len(self.steps) >= most_steps:
                break
            self._compare(best, best + 1)
            effect = self._effect(best)
        self.there = bool(self.culprits) or abs(effect) > LEAST_PART * abs(self.total)
        if self.there and (self.sure or not self.culprits):
            self.culprits.append((best, effect, float(chance[best])))
        return self.there and self.sure

    def _effect(self, suspect: int) -> float:
        """Return the effect of one suspect: that seen against its parent where it was, else over all comparisons."""
        direct = [value for base, candidate, value in self.seen if (base, candidate) == (suspect, suspect + 1)]
        if direct:
            return float(np.mean(direct))
        across = [(value, candidate > suspect) for base, candidate, value in self.seen if base == 0]
        on, off = ([value for value, is_on in across if is_on is wanted] for wanted in (True, False))
        return float((np.mean(on) if on else self.rest) - (np.mean(off) if off else 0.0))

    def result(self) -> Bisection:
        """Return what was found."""
        culprits = []
        for suspect, effect, chance in self.culprits:
            axis, version = self.suspects[suspect]
            versions = self.axes[axis].versions
            culprits.append(
                Culprit(axis=self.axes[axis].name, before=versions[version - 1], after=versions[version],
                        time_ratio=math.exp(effect), probability_ratio=chance)
            )  # fmt: skip
        outcome = NOT_THERE if not self.there else FOUND if self.sure else LIKELY
        return Bisection(outcome=outcome, culprits=tuple(culprits), steps=tuple(self.steps))
