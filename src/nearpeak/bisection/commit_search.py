"""Bisection of a slowdown over commits and component versions, with commands of the user."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nearpeak.bisection.noisy_search import BisectAxis, Bisection, bisected
from nearpeak.core.runs.launch_pairs import BASELINE, Launch, LaunchJudgement
from nearpeak.core.runs.paired_rounds import REGRESSION
from nearpeak.errors import MeasureError, SpecError
from nearpeak.history.revision_builds import COMMIT
from nearpeak.judgement.launch_verdict import MARGIN_RATIO, compared_in_looks
from nearpeak.store import Store
from nearpeak.store.git_commits import git_history, git_revision
from nearpeak.store.rows.investigation_rows import Attribution, BisectStep

LEAST_SPREAD_RATIO = 0.001
"""No comparison is taken to be surer than this."""


class Rounds(Protocol):
    """Source of measurement rounds of two versions: a workshop on this host, or the farm."""

    def round(self, baseline: Mapping[str, str], candidate: Mapping[str, str]) -> tuple[Launch, ...] | None:
        """Return one round A B B A in its order; none where one of the two cannot be built or run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Comparison of the ends of a search, and its result."""

    ends: LaunchJudgement
    """Good against bad, everything else as in each."""
    found: Bisection | None
    """Result; none where good and bad do not differ."""


def commit_axis(repository: Path, good: str, bad: str) -> BisectAxis:
    """Return the commits from `good` to `bad` along first parents.

    Raises:
        SpecError: one is not in the repository, or good does not come before bad.
    """
    first, last = git_revision(repository, good), git_revision(repository, bad)
    shas = [commit.sha for commit in git_history(repository, last.sha)]
    if first.sha not in shas or first.sha == last.sha:
        raise SpecError(f"bisect: {good} is no earlier first-parent commit of {bad}; exchange them, or name another")
    return BisectAxis(name=COMMIT, versions=tuple(shas[shas.index(first.sha) :]))


def searched(
    axes: Sequence[BisectAxis], workshop: Rounds, *, margin_ratio: float = MARGIN_RATIO, most_steps: int = 20
) -> Search:
    """Return the change that makes the last version of every axis slower than the first.

    First good and bad are compared in turns, which says how large the slowdown is and how far comparisons scatter; then
    the changes are searched.

    Raises:
        MeasureError: good or bad cannot be built or run.
    """
    good, bad = ({axis.name: axis.versions[end] for axis in axes} for end in (0, -1))
    rounds: list[tuple[Launch, ...]] = []

    def one_round() -> tuple[Launch, ...]:
        launches = workshop.round(good, bad)
        if launches is None:
            versions = f"good {_version_text(good)} or bad {_version_text(bad)}"
            raise MeasureError(f"bisect: {versions} cannot be built or run")
        rounds.append(launches)
        return launches

    ends = compared_in_looks(one_round, margin_ratio)
    effects = [_effect(launches) for launches in rounds]
    spread = max(LEAST_SPREAD_RATIO, statistics.stdev(effects))
    if ends.judgement.verdict != REGRESSION:
        return Search(ends=ends, found=None)

    def measure(left: Mapping[str, str], right: Mapping[str, str]) -> float | None:
        launches = workshop.round(left, right)
        return None if launches is None else math.exp(_effect(launches))

    result = bisected(axes, math.exp(statistics.fmean(effects)), spread, measure, most_steps=most_steps)
    return Search(ends=ends, found=result)


def record_culprits(store: Store, alert: int, search: Search) -> None:
    """Store the steps of a search, and its culprits as attributions of the alert."""
    result = search.found
    if result is None:
        return
    good, bad = (result.steps[0].baseline, result.steps[-1].candidate) if result.steps else ({}, {})
    number = store.investigations.start_bisect("commit", _version_text(good), _version_text(bad), alert=alert)
    for place, step in enumerate(result.steps, 1):
        verdict = "skip" if step.time_ratio is None else "ambiguous"
        if step.time_ratio is not None and search.ends.judgement.time_ratio > 1:
            middle = math.sqrt(search.ends.judgement.time_ratio)
            verdict = "bad" if step.time_ratio > middle else "good"
        evidence = {"baseline": dict(step.baseline), "time_ratio": step.time_ratio}
        record = BisectStep(candidate=_version_text(step.candidate), verdict=verdict, evidence=evidence)
        store.investigations.add_step(number, place, record)
    store.investigations.end_bisect(number, "done", {"outcome": result.outcome})
    for culprit in result.culprits:
        axis = culprit.axis if culprit.axis in ("commit", "driver") else "component"
        store.investigations.record_attribution(
            Attribution(alert=alert, axis=axis, what=culprit.after if axis == "commit" else culprit.axis,
                        before=culprit.before, after=culprit.after, score_ratio=culprit.probability_ratio,
                        method="bisect", evidence={"time_ratio": culprit.time_ratio})
        )  # fmt: skip


def _effect(launches: Sequence[Launch]) -> float:
    """Return the mean logarithm of the candidate's times minus that of the baseline's."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for launch in launches:
        sides[launch.arm == BASELINE].append(math.log(launch.time_s))
    return statistics.fmean(sides[False]) - statistics.fmean(sides[True])


def _version_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version[:12]}" for name, version in versions.items())
