"""Series whose newest commits did not run to their end: since when, how, and the alerts that follow them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.stored_run import Series
from nearpeak.core.runs.measurement import FAILURES
from nearpeak.store import Alert, Detector, History, Store, StoredChange

WORDS = {**FAILURES, "incorrect": "gave a wrong result"}
"""Outcomes that are failures, and what reports call them."""
_DETECTOR = Detector(name="failures", version="1")
_OVER = "went-away"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSeries:
    """A series without a right result since some commit."""

    series: Series
    """The series."""
    outcome: str
    """How its newest run ended."""
    good_sha: str
    """Last commit before; empty where there is none."""
    bad_sha: str
    """First commit that failed; empty where runs are of none."""
    order_key: int
    """Place of its run in the history."""
    commit_count: int
    """Commits that failed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGroup:
    """Series that began to fail in one way at one commit."""

    outcome: str
    """How: `crash`, `timeout`, `oom`, `failed` or `incorrect`."""
    good_sha: str
    """Last commit that ran; empty where there is none."""
    bad_sha: str
    """First commit that failed."""
    subject: str
    """First line of its message."""
    failures: tuple[FailedSeries, ...]
    """The series."""
    alert_id: int = 0
    """Alert that it is followed by; 0 where it has none."""
    status: str = ""
    """State of the alert."""

    @property
    def title(self) -> str:
        """What happened, in one line."""
        count, where = len(self.failures), self.subject or self.bad_sha[:10] or "runs of no commit"
        return f"{count} series {WORDS[self.outcome]}: {where}"


def failed_groups(store: Store, series: Sequence[Series]) -> tuple[FailedGroup, ...]:
    """Return series whose newest commit failed, in groups that began together, newest first."""
    failures = [failed for entry in series if (failed := failed_series(store.history(entry.id))) is not None]
    shas = {failed.bad_sha for failed in failures}
    subjects = (
        {run.revision.sha: run.revision.subject for run in store.runs() if run.revision is not None} if shas else {}
    )
    failures.sort(key=lambda failed: (-failed.order_key, failed.bad_sha, failed.outcome, failed.good_sha))
    return tuple(
        FailedGroup(
            outcome=outcome, good_sha=good, bad_sha=bad, subject=subjects.get(bad, ""), failures=tuple(part)
        )
        for (bad, outcome, good), part in groupby(
            failures, key=lambda failed: (failed.bad_sha, failed.outcome, failed.good_sha)
        )
    )  # fmt: skip


def failed_series(history: History) -> FailedSeries | None:
    """Return since when a series fails; none where its newest commit has a value."""
    rows = [
        (sha or str(key), sha, key, outcome)
        for sha, key, outcome in zip(history.shas, history.order_keys.tolist(), history.outcomes, strict=True)
    ]
    commits = [list(part) for _, part in groupby(rows, key=lambda row: row[0])]
    ends = [next((row[3] for row in part if row[3] in WORDS), "") for part in (_newest_run(part) for part in commits)]
    if not ends or not ends[-1]:
        return None
    first = next((place + 1 for place in range(len(ends) - 1, -1, -1) if not ends[place]), 0)
    return FailedSeries(
        series=history.series, outcome=ends[first], good_sha=commits[first - 1][0][1] if first else "",
        bad_sha=commits[first][0][1], order_key=commits[first][0][2], commit_count=len(commits) - first,
    )  # fmt: skip


def _newest_run(rows: Sequence[tuple[str, str, int, str]]) -> list[tuple[str, str, int, str]]:
    return [row for row in rows if row[2] == rows[-1][2]]


def save_failures(store: Store, series: Sequence[Series], groups: Sequence[FailedGroup]) -> tuple[FailedGroup, ...]:
    """Open an alert for each group that none follows yet, and return groups with their alerts.

    Failures that are over are marked as retracted. An alert of which all are is closed as `went-away`, and active again
    when one of them comes back.
    """
    by_series = {failed.series.id: failed for group in groups for failed in group.failures}
    numbers: dict[int, int] = {}
    with store.together("alerts"):
        for entry in series:
            rows = [_stored(by_series[entry.id])] if entry.id in by_series else []
            for done in store.findings.record_changes(entry.id, _DETECTOR, rows):
                numbers[done.series] = done.id
        known = store.findings.alerts_by_change()
        _close_ended(store, known, {entry.id for entry in series} - by_series.keys())
        return tuple(
            _followed(store, group, [numbers[item.series.id] for item in group.failures], known) for group in groups
        )


def _stored(failed: FailedSeries) -> StoredChange:
    return StoredChange(
        series=failed.series.id, order_key=failed.order_key, rev_lo=failed.good_sha, rev_hi=failed.bad_sha,
        effect_ratio=0.0, tier="confirmed", after_count=failed.commit_count, evidence={"outcome": failed.outcome},
    )  # fmt: skip


def _close_ended(store: Store, alerts: Mapping[int, Alert], good: Collection[int]) -> None:
    """Close each open alert whose changes are failures, all of them over.

    Args:
        alerts: by change.
        good: series that were looked at and do not fail.
    """
    known = store.findings.changes(retracted=True, detector=_DETECTOR.name)
    over = {change.id for change in known if change.retracted_ns is not None}
    ended = {
        alerts[change.id].id: alerts[change.id] for change in known if change.id in alerts and change.series in good
    }
    for alert in ended.values():
        if alert.status not in CLOSED and over.issuperset(change for change, _ in alert.members):
            store.findings.move_alert(alert.id, _OVER, actor="nearpeak", note="its series run again")


def _followed(store: Store, group: FailedGroup, changes: Sequence[int], known: Mapping[int, Alert]) -> FailedGroup:
    alert = next((known[change] for change in changes if change in known), None)
    if alert is not None:
        store.findings.add_members(alert.id, dict.fromkeys(changes, "related"))
        if alert.status != _OVER:
            return replace(group, alert_id=alert.id, status=alert.status)
        store.findings.move_alert(alert.id, "active", actor="nearpeak", note="it fails again")
        return replace(group, alert_id=alert.id, status="active")
    roles = {changes[0]: "primary"} | dict.fromkeys(changes[1:], "related")
    number = store.findings.open_alert(group.title, roles, rev_lo=group.good_sha, rev_hi=group.bad_sha)
    return replace(group, alert_id=number, status="new")
