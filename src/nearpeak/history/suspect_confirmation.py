"""Confirms suspects: interleaved re-measurement of last good and first bad revision, and update of the alert."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

from nearpeak.core.history.track import Regressed
from nearpeak.core.runs.launch_pairs import BY_CLOCKS, Launch, LaunchJudgement
from nearpeak.errors import MeasureError
from nearpeak.history.revision_builds import COMMIT, Workshop, checked
from nearpeak.judgement.alert_rules import after_verdict
from nearpeak.judgement.launch_verdict import LOOKS, MARGIN_RATIO, compared_in_looks
from nearpeak.store import Store, StoredComparison
from nearpeak.units import signed_percent

Round = Callable[[str, str], "tuple[Launch, ...] | None"]
"""Measures one round A B B A of two commits."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Result of the re-measurement of a group of changes."""

    group: Regressed
    """The group with the new state of its alert."""
    found: LaunchJudgement
    """The verdict on the launches."""
    launch_count: int
    """Launches that it took."""


def confirmed(store: Store, group: Regressed, measure_round: Round, margin_ratio: float = MARGIN_RATIO) -> Confirmation:
    """Return the verdict of interleaved runs of a group's good and bad commit (3, 5 or 10 rounds), and store it.

    A change makes the alert active and its members confirmed; none, `invalid-noise`; one that is gone at equal clocks,
    `infra`; where there is no verdict, the alert is new again.

    Raises:
        MeasureError: one of the two cannot be built or run.
    """
    good, bad = group.changes[0][1].safe_good_sha, group.changes[0][1].safe_bad_sha
    taken: list[Launch] = []

    def one_round() -> tuple[Launch, ...]:
        launches = measure_round(good, bad)
        if launches is None:
            raise MeasureError(f"{good[:10]} or {bad[:10]}: cannot be built or run; see what the commands print")
        taken.extend(launches)
        return launches

    _move(store, group, "verifying", "measured again in turns")
    try:
        judgement = compared_in_looks(one_round, margin_ratio, LOOKS)
    except MeasureError as error:
        _move(store, group, "new", str(error)[:200])
        raise
    _keep(store, group, judgement, taken, (good, bad))
    return Confirmation(group=_moved(store, group, judgement), found=judgement, launch_count=len(taken))


def _keep(
    store: Store, group: Regressed, result: LaunchJudgement, taken: list[Launch], commits: tuple[str, str]
) -> None:
    judgement = result.judgement
    store.findings.record_comparison(
        StoredComparison(
            baseline=commits[0], candidate=commits[1], verdict=judgement.verdict, series=group.changes[0][0].id,
            theta_ratio=math.log(result.plain.time_ratio), theta_clock_ratio=math.log(judgement.time_ratio),
            low_ratio=math.log(judgement.low_ratio), high_ratio=math.log(judgement.high_ratio),
            look_count=judgement.round_count, launch_count=len(taken),
            inputs={"launches": [dataclasses.asdict(launch) for launch in taken], "cause": result.cause},
        )
    )  # fmt: skip


def _moved(store: Store, group: Regressed, judgement: LaunchJudgement) -> Regressed:
    """Move the alert to the state that follows from the verdict, and confirm its changes where it is active."""
    verdict, ratio = judgement.judgement.verdict, judgement.judgement.time_ratio
    outcome = f"{verdict}: {signed_percent(ratio - 1)} in turns"
    if judgement.cause == BY_CLOCKS:
        return _move(store, group, "infra", f"{outcome}; {judgement.cause}")
    status, note = after_verdict("verifying", verdict, ratio) or ("new", outcome)
    if status == "active":
        for alert in store.findings.alerts():
            if alert.id == group.alert_id:
                for member, _ in alert.members:
                    store.findings.confirm(member, {"in turns": ratio})
    return _move(store, group, status, note)


def _move(store: Store, group: Regressed, status: str, note: str) -> Regressed:
    store.findings.move_alert(group.alert_id, status, actor="nearpeak", note=note)
    return dataclasses.replace(group, status=status)


def rounds_in(workshop: Workshop, repository: Path) -> Round:
    """Return what measures rounds of two commits in a workshop.

    Raises:
        SpecError: when it is called with a commit that is not in the repository.
    """

    def measure_round(good: str, bad: str) -> tuple[Launch, ...] | None:
        return workshop.round({COMMIT: checked(repository, good)}, {COMMIT: checked(repository, bad)})

    return measure_round
