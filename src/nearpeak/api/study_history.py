"""Finished tuning studies as runs of the store: the leading configuration, measured anew, beside what was tried."""

from dataclasses import replace

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.stored_run import TIME, Revision, RunRecord, Source
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.tuning.space import settings_text
from nearpeak.core.tuning.study import STUDIES, Study
from nearpeak.core.work.case import Case
from nearpeak.store import Store

IMPORTER = "tune"
"""Importer of such runs, and the word before the runner in the names of their testbeds."""
RECORD = "tuning"
"""Kind of the attachment that says which configuration leads, and how it was found."""
LAUNCH_COUNT = 3
"""Fresh processes that measure the leading configuration."""


def keep_study(
    study: Study, case: Case, timing: Timing, store: Store, *, revision: Revision | None = None, branch: str = "main"
) -> bool | None:
    """Measure the configuration that leads a study, and put it into the store; a study is kept once.

    Its series holds the time of the case with whatever configuration leads, so that a later search that ends worse is a
    regression. It is measured in fresh processes, as the samples of a search flatter its best.

    Returns:
        Whether it is new in the store; none where no configuration leads.

    Raises:
        StoreError: the store cannot be written.
    """
    source = Source(digest=study_digest(study), importer=IMPORTER, name=study.space)
    if study.leader is None or store.holds(source):
        return None if study.leader is None else False
    from nearpeak.api.measured_analysis import measure
    from nearpeak.store.importers.nearpeak_results import runs_of_now

    runner = f"{study.runner}[{settings_text(study.leader)}]"
    measurements = list(measure(case, runner, timing, launch_count=LAUNCH_COUNT))
    named = [replace(measurement, runner=f"{IMPORTER} {study.runner}") for measurement in measurements]
    record = runs_of_now(named, revision, branch)[0]
    return store.ingest(replace(_with_evaluations(record, study), source=source)).new


def kept_configurations(store: Store, series: int) -> tuple[tuple[str, str], ...]:
    """Return the configurations that led a tuned kernel, each with the commit from which it did, oldest first.

    Empty for a series that no study made.

    Raises:
        StoreError: a record of it is damaged.
    """
    history = store.history(series)
    if not history.series.testbed.name.startswith(f"{IMPORTER} "):
        return ()
    changes = list[tuple[str, str]]()
    for number, sha, launch in zip(history.run_ids.tolist(), history.shas, history.launches.tolist(), strict=True):
        record = store.records(number, series, launch).get(RECORD)
        if record is not None and (words := settings_text(record["settings"])) != (changes[-1][1] if changes else None):
            changes.append((sha, words))
    return tuple(changes)


def study_digest(study: Study) -> str:
    """Return the identity of a finished study: what was searched, and all that was measured in it."""
    plain = STUDIES.plain(study)
    return digest([plain[name] for name in ("space", "subject", "runner", "search", "seed", "trials", "contests")])


def _with_evaluations(record: RunRecord, study: Study) -> RunRecord:
    """Return a run whose times carry the configuration, the counts of the search, and its evaluations."""
    ran = [trial for trial in study.trials if trial.time_s is not None]
    counts = {outcome: study.count_of(outcome) for outcome in dict.fromkeys(trial.outcome for trial in study.trials)}
    evaluations = {
        "settings": study.leader, "winner": study.winner is not None, "search": study.search, "seed": study.seed,
        "legal_count": study.legal_count, "counts": counts, "stop_reason": study.stop_reason,
    }  # fmt: skip
    samples = [
        replace(
            sample_set, note=f"{settings_text(study.leader or {})}; {sample_set.note}".removesuffix("; "),
            channels={**sample_set.channels, "evaluation_s": tuple(trial.time_s or 0.0 for trial in ran)},
            records={**sample_set.records, RECORD: canonical_json(evaluations)},
        ) if sample_set.metric == TIME and sample_set.launch == 0 else sample_set
        for sample_set in record.samples
    ]  # fmt: skip
    return replace(record, samples=tuple(samples))
