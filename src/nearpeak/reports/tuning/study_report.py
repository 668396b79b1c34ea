"""Report of a tuning study: the winner, how it was proved, what was tried, excluded and wrong, and what is left."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from math import inf

from nearpeak.core.runs.paired_rounds import IMPROVEMENT, REGRESSION
from nearpeak.core.tuning.space import Setting, settings_text
from nearpeak.core.tuning.study import FAILED, PRUNED, STOPPED, TIMED, WRONG, Contest, Study
from nearpeak.reports.brief_text import brief, ends
from nearpeak.reports.document import Block, Cell, Details, Document, Drawing, Table, Text, columns
from nearpeak.reports.tuning.search_curve import search_curve
from nearpeak.units import counted

_SHOWN = 6
"""Configurations that a terminal shows."""
_VERDICTS = {IMPROVEMENT: "faster", REGRESSION: "slower", "invariant": "the same", "inconclusive": "inconclusive"}
_STYLES = {IMPROVEMENT: "good", WRONG: "bad"}


def to_json(study: Study) -> str:
    """Return the study as one JSON line."""
    return json.dumps(study.record(), allow_nan=False)


def document_of(study: Study) -> Document:
    """Return the study as a document; trials one by one are folded."""
    blocks: list[Block] = [*(_front(study) if study.objectives else _fastest(study))]
    blocks += _contests(study)
    blocks.append(Text(_counts(study), "muted"))
    if study.winner is not None:
        words = _words(study.winner)
        blocks.append(Text(f"Keep its history: nearpeak measure … --runner '{study.runner}[{words}]' --store FILE"))
    faults = [trial for trial in study.trials if trial.outcome in (WRONG, FAILED)]
    if faults:
        blocks.append(
            Table(
                columns=columns("~`configuration", "outcome", "~>reason"), name="faults", brief_count=2,
                rows=[(_words(trial.settings), trial.outcome, trial.note) for trial in faults],
                caption="Wrong and failed configurations, which cannot win", rest="… and more with --why or --json",
            )
        )  # fmt: skip
    if not study.objectives and study.best is not None:
        blocks.append(Drawing("Time of each configuration, and the best so far", partial(search_curve, study)))
    course = () if study.objectives else (_course(study),)
    blocks.append(Details("Best so far, and every configuration in order (--why)", (*course, _trials(study))))
    of = f" of {study.combination_count:,} combinations" if study.combination_count > study.legal_count else ""
    return Document(
        title=f"{study.space}: {study.subject}",
        subject=f"{study.legal_count:,} legal configurations{of}, search {study.search}, seed {study.seed}",
        lead=_verdict(study), blocks=blocks, kicker="Kernel tuning", figures=_figures(study),
    )  # fmt: skip


def _words(settings: Mapping[str, Setting] | None) -> str:
    return settings_text(settings) if settings else "none"


def _verdict(study: Study) -> str:
    """Return the answer in one or two sentences."""
    if not study.stop_reason:
        return _so_far(study)
    if study.objectives:
        kinds, last = ", ".join(study.objectives[:-1]), study.objectives[-1]
        named = f"{kinds} and {last}" if kinds else last
        count = f"{counted(len(study.front), 'configuration')} that no other beats in {named}"
        return f"{count if study.front else 'No configuration has a result'}; {study.stop_reason}."
    best = study.best
    if best is None or best.time_s is None:
        return f"No configuration has a time; {study.stop_reason}."
    if study.winner is not None:
        time_s = next((trial.time_s for trial in study.trials if trial.settings == study.winner), best.time_s) or 0.0
        proof = f"{_gain(study)}{_distance(study, time_s)}"
        return f"{_words(study.winner)}: {brief(time_s, 's')}{proof}; {study.stop_reason}."
    if not study.contests:
        return (
            f"Best of the search, not confirmed in pairs: {_words(best.settings)}, {brief(best.time_s, 's')}"
            f"{_distance(study, best.time_s)}; {study.stop_reason}."
        )
    return (
        f"No winner: of {counted(len(study.contests), 'finalist')} none is proved right and faster than the default "
        f"{_words(study.default)}; {study.stop_reason}."
    )


def _so_far(study: Study) -> str:
    """Return how far a search that goes on has come."""
    ran = f"{counted(len(study.trials) - study.count_of(PRUNED), 'evaluation')} until now"
    if study.objectives:
        return f"Goes on: {ran}, {counted(len(study.front), 'configuration')} that no other beats."
    best = study.best
    if best is None or best.time_s is None:
        return f"Goes on: {ran}, no configuration has a time yet."
    ratio = _distance(study, best.time_s)
    return f"Goes on: {ran}, best so far {_words(best.settings)}, {brief(best.time_s, 's')}{ratio}."


def _gain(study: Study) -> str:
    """Return what the pairs say of the winner against the default, in words."""
    won = [contest for contest in study.contests if contest.verdict == IMPROVEMENT and contest.time_ratio]
    last = won[-1] if won else None
    if last is None or not last.time_ratio or not last.low_ratio or not last.high_ratio:
        return ""
    than = "the default" if last.champion == study.default else "the next"
    low, high = 1 / last.high_ratio, 1 / last.low_ratio
    return f", {1 / last.time_ratio:.3g} × as fast as {than} ({low:.3g} to {high:.3g}, interleaved pairs)"


def _distance(study: Study, time_s: float) -> str:
    if study.achievable_s and study.achievable_low_s:
        return f", {time_s / study.achievable_s:.2g} × the achievable time"
    return f", {time_s / study.bound_s:.2g} × its bound" if study.bound_s else ""


def _figures(study: Study) -> list[tuple[str, str, str]]:
    """Return the figures that a page shows large."""
    best, rows = study.best, []
    if best is not None and best.time_s is not None:
        rows.append(("best", brief(best.time_s, "s"), _words(best.settings)))
    if study.achievable_s and study.achievable_low_s:
        rows.append(("achievable", brief(study.achievable_s, "s"), f"from {brief(study.achievable_low_s, 's')}"))
        if best is not None and best.time_s is not None:
            ratio = best.time_s / study.achievable_s
            rows.append(("distance", f"{ratio:.2f} ×", "best over achievable"))
    if study.bound_s:
        rows.append(("bound", brief(study.bound_s, "s"), "nothing can beat it"))
    ran = len(study.trials) - study.count_of(PRUNED)
    rows.append(("evaluations", f"{ran:,}", f"of {study.legal_count:,} legal"))
    if not study.objectives:
        rows.append(("pruned", f"{study.count_of(PRUNED):,}", "their bound is above the best"))
    rows.append(("wrong or failed", f"{study.count_of(WRONG) + study.count_of(FAILED):,}", "cannot win"))
    return rows


def _fastest(study: Study) -> Iterator[Block]:
    """Yield the fastest configurations of the search."""
    best = study.best
    if best is None or best.time_s is None:
        return
    timed = sorted((trial for trial in study.trials if trial.outcome == TIMED), key=lambda trial: trial.score_s)
    rows = [
        (
            _words(trial.settings),
            trial.time_s,
            (trial.time_s or inf) / best.time_s,
            len(trial.samples_s),
            trial.position,
        )
        for trial in timed
    ]
    heads = ("~`configuration", "#time_s|time", "#against|× best", "#calls", "+#trial")
    cells = [(*row[:2], Cell(value=row[2], text=f"{row[2]:.3f}"), *row[3:]) for row in rows]
    yield Table(
        columns=columns(*heads), rows=cells, name="fastest", caption="Fastest of the search", brief_count=_SHOWN,
        rest="… and more with --json",
    )  # fmt: skip


def _front(study: Study) -> Iterator[Block]:
    """Yield the configurations that no other beats."""
    shown = sorted(study.front, key=lambda trial: trial.values[study.objectives[0]])
    heads = ("~`configuration", *_objective_heads(study))
    rows = [(_words(trial.settings), *(trial.values[name] for name in study.objectives)) for trial in shown]
    yield Table(
        columns=columns(*heads), rows=rows, name="front", caption="Configurations that no other beats",
        brief_count=2 * _SHOWN, rest="… and more with --json", empty="none has a result",
    )  # fmt: skip


def _objective_heads(study: Study) -> list[str]:
    return [f"#{name}|{name.removesuffix('_s').removesuffix('_ratio')}" for name in study.objectives]


def _contests(study: Study) -> Iterator[Block]:
    """Yield the final comparisons."""
    if not study.contests:
        return
    rows = [_contest_row(contest) for contest in study.contests]
    caption, against = "Finalists in interleaved pairs", "~`against"
    if len({_words(contest.champion) for contest in study.contests}) == 1:
        caption, against = f"Finalists in pairs against {_words(study.contests[0].champion)}", "+`against"
    heads = ("~`finalist", against, "#ratio|time ratio", "~verdict")
    yield Table(columns=columns(*heads), rows=rows, name="contests", caption=caption)
    shifts = [c.time_ratio / c.search_ratio for c in study.contests if c.time_ratio and c.search_ratio]
    if shifts:
        yield Text(
            f"The pairs say {sum(shifts) / len(shifts):.3f} × what the search measured: above 1 it was lucky.", "muted"
        )


def _contest_row(contest: Contest) -> tuple[Cell, ...]:
    """Return a final comparison as a row: finalist, champion, ratio of their times, verdict."""
    ratio = Cell(value=None, text="–")
    if contest.time_ratio is not None and contest.low_ratio is not None and contest.high_ratio is not None:
        interval = ends(contest.low_ratio, min(contest.high_ratio, 99.0), 1.0, "")
        ratio = Cell(value=contest.time_ratio, text=f"{contest.time_ratio:.3f} ({interval})")
    words = _VERDICTS.get(contest.verdict, contest.verdict)
    text = f"{words}: {contest.note}" if contest.note else words
    verdict = Cell(value=contest.verdict, text=text, kind=_STYLES.get(contest.verdict, ""))
    finalist, champion = (  # spaces, so that no name is broken where the column is narrow
        Cell(value=words, text=words.replace(",", ", "))
        for words in (_words(contest.challenger), _words(contest.champion))
    )
    return finalist, champion, ratio, verdict


def _counts(study: Study) -> str:
    """Return what became of the configurations, in words."""
    counts = Counter(trial.outcome for trial in study.trials)
    names = {TIMED: "timed", STOPPED: "stopped early as slower", PRUNED: "excluded by their bound", WRONG: "wrong",
             FAILED: "failed"}  # fmt: skip
    parts = ", ".join(f"{counts[outcome]:,} {name}" for outcome, name in names.items() if counts[outcome])
    spent_s = sum(trial.spent_s for trial in study.trials)
    return f"{counted(len(study.trials), 'configuration')}: {parts or 'none'}; {brief(spent_s, 's')} in all."


def _course(study: Study) -> Table:
    """Return the trials that improved the best so far, with their distance to the achievable time."""
    rows, best_s = list[tuple[object, ...]](), inf
    for trial in study.trials:
        if trial.score_s < best_s:
            best_s = trial.score_s
            ratio = None if study.achievable_s is None else best_s / study.achievable_s
            distance = Cell(value=ratio, text="–" if ratio is None else f"{ratio:.2f}")
            rows.append((trial.position, _words(trial.settings), best_s, distance))
    heads = ("#trial", "~`configuration", "#time_s|best so far", "#distance|× achievable")
    return Table(columns=columns(*heads), rows=rows, name="course", caption="Best so far", empty="none has a time")


def _trials(study: Study) -> Table:
    """Return all trials in order, with their objectives or their times."""
    rows = [
        (
            trial.position, _words(trial.settings), trial.outcome,
            *([trial.values.get(name) for name in study.objectives] or (trial.time_s, len(trial.samples_s))),
            trial.note,
        )
        for trial in study.trials
    ]  # fmt: skip
    results = _objective_heads(study) or ["#time_s|time", "#calls"]
    heads = ("#trial", "~`configuration", "outcome", *results, "~>note")
    return Table(columns=columns(*heads), rows=rows, name="trials", caption="Every configuration in order")
