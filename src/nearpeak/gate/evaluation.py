"""Evaluates a gate on a store: series of the revision, baselines from history, bounds and predictions."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nearpeak.core.history.gate import GatePolicy, GateResult, GateRule, GateSubject
from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import TrackPoint
from nearpeak.core.runs.measurement import FAILURES
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.gate.baselines import Line, far_of, judged_in_history
from nearpeak.gate.rules import Judged, decided, selects
from nearpeak.history.series_bridges import linked_points
from nearpeak.history.series_state import bound_of, prediction_of
from nearpeak.history.stored_devices import target_of_device
from nearpeak.store import History, Store
from nearpeak.store.rows.policy_rows import Baseline

MANY_LAUNCHES = 5
"""Launches from which their medians are the sample; of fewer, all their samples are."""
HISTORIC = ("previous", "tag", "rolling")
"""Baselines that are revisions."""
LEAST_LETTERS = 7
"""Letters of a commit that name it."""


def gated(
    store: Store, policy: GatePolicy, *, revision: str = "", branch: str = "main", against: str = "",
    metric: str = "time", repository: Path | None = None,
) -> GateResult:  # fmt: skip
    """Return the result of `policy` for a revision.

    Args:
        revision: commit, or the first letters of it; the newest of the branch by default.
        against: branch whose history is the baseline; the same one by default.
        repository: folder of the git repository in which tags are looked up.

    Raises:
        NotFoundError: the store holds no measurement of it.
        SpecError: a tag is not to be found, or a revision names several commits.
    """
    held = store.series(metric=metric, branch=branch)
    histories = {series.id: store.history(series.id) for series in held}
    sha = _resolved(store, histories, revision, branch)
    here = [series for series in held if sha in histories[series.id].shas]
    subjects = _subjects(store, policy, here, histories, sha)
    bases = _bases(store, here, histories, against if against != branch else "", metric)
    baselines = store.policies.baselines().items()
    named = {name: baseline.selector for name, baseline in baselines if baseline.kind in ("tag", "commit")}
    tags = {
        rule.name: named.get(rule.tag) or _tagged(rule, bases.values(), repository)
        for rule in policy.rules if rule.baseline == "tag"
    }  # fmt: skip
    lines = [
        Line(own=linked_points(store, histories[series.id])[0], base=bases[series.id], sha=sha, metric=series.metric)
        for series in here
    ]
    return decided(policy, subjects, _judged(policy, list(zip(subjects, lines, strict=True)), tags), sha)


def _judged(policy: GatePolicy, pairs: Sequence[tuple[GateSubject, Line]], tags: Mapping[str, str]) -> Judged:
    """Return the verdicts of rules that compare revisions, by rule and series; none where a baseline has no value."""
    far = far_of([line for _, line in pairs])
    judgements = {
        (rule.name, subject.series): judged_in_history(rule, line, tags.get(rule.name, ""), far)
        for rule in policy.rules if rule.baseline in HISTORIC
        for subject, line in pairs if selects(rule, subject)
    }  # fmt: skip
    return {key: judgement for key, judgement in judgements.items() if judgement is not None}


def record_gate_result(store: Store, result: GateResult, mark: str = "") -> None:
    """Store the result of a gate, and optionally a name for the judged commit.

    Args:
        mark: name that `tag` of later policies can use.
    """
    store.policies.record_gate(result)
    if mark:
        store.policies.set_baseline(Baseline(name=mark, kind="commit", selector=result.revision))


def _resolved(store: Store, histories: dict[int, History], revision: str, branch: str) -> str:
    """Return the full hash of the judged commit."""
    rows = (
        (sha, int(key))
        for history in histories.values()
        for sha, key in zip(history.shas, history.order_keys, strict=True)
    )
    newest = {sha: key for sha, key in rows if sha}
    if not newest:
        raise NotFoundError(
            f"{store.name}: branch {branch!r} has no measured commits; 'nearpeak store import' adds some"
        )
    if not revision:
        return max(newest, key=newest.__getitem__)
    matches = [sha for sha in newest if sha.startswith(revision)]
    if len(matches) > 1:
        raise SpecError(f"--revision {revision!r}: names {len(matches)} commits; give more letters")
    if not matches:
        raise NotFoundError(f"{store.name}: revision {revision!r} was not measured on branch {branch!r}")
    return matches[0]


def _subjects(
    store: Store, policy: GatePolicy, here: Sequence[Series], histories: dict[int, History], sha: str
) -> list[GateSubject]:
    wanted = {rule.baseline for rule in policy.rules}
    names = [f"{series.label}, {series.testbed.name}, {series.device}" for series in here]
    unique = [
        name if names.count(name) == 1 else f"{name}, series {series.id}"
        for series, name in zip(here, names, strict=True)
    ]
    return [
        _subject(store, series, histories[series.id], sha, name, wanted)
        for series, name in zip(here, unique, strict=True)
    ]


def _subject(store: Store, series: Series, history: History, sha: str, name: str, wanted: set[str]) -> GateSubject:
    rows = [row for row, other in enumerate(history.shas) if other == sha]
    target = target_of_device(series.device)
    fields = {
        "op": str(series.parameters.get("op", series.workload)), "target": target.name if target else series.device,
        "runner": series.testbed.name, "model": series.workload, "team": series.owner, "branch": series.branch,
        "case": series.label,
    }  # fmt: skip
    return GateSubject(
        series=name, fields=fields, times_s=_times(store, history, rows), outcome=_outcome(history, rows),
        bound_s=bound.time_s if "bound" in wanted and (bound := bound_of(series)) else None,
        predicted_s=prediction.time_s if "prediction" in wanted and (prediction := prediction_of(series)) else None,
    )  # fmt: skip


def _outcome(history: History, rows: Sequence[int]) -> str:
    """Return how the newest run of a revision ended: as its worst launch, of which the others tell nothing."""
    outcomes = [history.outcomes[row] for row in rows if history.run_ids[row] == history.run_ids[rows[-1]]]
    return next((outcome for outcome in ("incorrect", *FAILURES, "infra") if outcome in outcomes), outcomes[-1])


def _times(store: Store, history: History, rows: Sequence[int]) -> tuple[float, ...]:
    medians = [float(history.median[row]) for row in rows if history.median[row] == history.median[row]]
    if not medians or len(medians) >= MANY_LAUNCHES:
        return tuple(medians)
    times_s: list[float] = []
    for row in rows:
        try:
            run, launch = int(history.run_ids[row]), int(history.launches[row])
            times_s += store.samples(run, history.series.id, launch).tolist()
        except NotFoundError:  # archived: the median is what is left
            continue
    return tuple(times_s or medians)


def _bases(
    store: Store, here: Sequence[Series], histories: dict[int, History], against: str, metric: str
) -> dict[int, tuple[TrackPoint, ...]]:
    """Return, for each series, the points of its baseline branch."""
    if not against:
        return {series.id: linked_points(store, histories[series.id])[0] for series in here}
    others = {_key(series): series.id for series in store.series(metric=metric, branch=against)}
    return {
        series.id: linked_points(store, store.history(others[_key(series)]))[0] if _key(series) in others else ()
        for series in here
    }


def _key(series: Series) -> tuple[object, ...]:
    """Return the key that comparable series of two branches share."""
    return (series.case, series.device, series.testbed.name, tuple(sorted(series.testbed.policy.items())), series.track)


def _tagged(rule: GateRule, bases: Iterable[tuple[TrackPoint, ...]], repository: Path | None) -> str:
    """Return the commit of a rule's tag: the prefix of a measured commit, or a name in the repository."""
    shas = {point.sha for points in bases for point in points}
    if len(rule.tag) >= LEAST_LETTERS and (matches := [sha for sha in shas if sha.startswith(rule.tag)]):
        if len(matches) > 1:
            raise SpecError(f"rule {rule.name!r}: tag {rule.tag!r} names {len(matches)} commits; give more letters")
        return matches[0]
    if repository is None:
        raise SpecError(f"rule {rule.name!r}: tag {rule.tag!r} is no measured commit; give --repository to look it up")
    from nearpeak.store.git_commits import git_revision

    return git_revision(repository, rule.tag).sha
