"""Dashboard page: one alert, with the size of its change, likely causes, past actions and next steps."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.stored_run import Series
from nearpeak.history.alert_queue import AlertFilter, place_in
from nearpeak.history.alert_triage import NOTHING, weights_of
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.store.rows.finding_values import AlertEvent, StoredChange, StoredComparison
from nearpeak.store.rows.investigation_rows import Attribution
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web.cell_text import change, clean, date, percent, series_cell, sha_text, shortened, time_cell
from nearpeak.web.measure_actions import again
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.pages.triage import queue_of
from nearpeak.web.query_arguments import Query
from nearpeak.web.reproduction_commands import measure_command, store_option
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site, alert_of

CHARTS = 24
"""Series that are drawn; the table holds all."""


def build(site: Site, query: Query) -> View:
    """Return the page of an alert."""
    number = query.id("alert")
    alert = alert_of(site.store, number)
    members = dict(site.store.browsing.member_roles(number))
    changes = sorted(site.store.browsing.changes(ids=list(members)), key=lambda item: -abs(item.effect_ratio))
    series = {item.id: item for item in site.store.browsing.series_by_id([item.series for item in changes])}
    drawn = [series[item] for item in dict.fromkeys(item.series for item in changes) if item in series][:CHARTS]
    rows = changes[0].evidence.get("stack") if changes else None
    stack = (
        tuple((str(name), str(before), str(after)) for name, before, after in rows) if isinstance(rows, list) else ()
    )
    wish = again(site, f"/alerts/{number}", drawn, alert)
    blamed = site.store.investigations.attributions(number)
    tables = (
        _changes(changes, series, members), Table(
            name="stack", caption="Software that changed with it",
            columns=columns("component|Component", "before|Before", "after|After"),
            rows=tuple(tuple(word for word in row) for row in stack), empty="the same software on both sides",
        ), _blamed(blamed), *_bisects(site, number),
        *_comparisons(site, drawn), _events(site.store.findings.events(number)), wish.jobs,
    )  # fmt: skip
    return View(
        title=f"Alert {number}", template="alert", tables=tables,
        context={
            "alert": alert, "again": wish, "charts": small_charts(site, drawn),
            "weight": weights_of(site.store.browsing.members([number])).get(number, NOTHING),
            "tables": {item.name: item for item in tables}, "shown": tables, "blamed": blamed, "stack": stack,
            "revision": _revision(site, changes), "sha": sha_text, "date": date, "percent": percent,
            "commands": tuple(_commands(site, alert, drawn)), "more": max(0, len(series) - len(drawn)),
            "is_closed": alert.status in CLOSED, "clean": clean,
            "neighbours": place_in(queue_of(site).wanted(AlertFilter()), number),
        },
    )  # fmt: skip


def _revision(site: Site, changes: Sequence[StoredChange]) -> str:
    """Return the subject of the first bad commit."""
    if not changes:
        return ""
    runs = site.store.browsing.runs_at([changes[0].order_key])
    return next((run.revision.subject for run in runs if run.revision), "")


def _changes(changes: Sequence[StoredChange], series: Mapping[int, Series], roles: Mapping[int, str]) -> Table:
    return Table(
        name="changes", caption="Series that changed",
        columns=columns("series|Series", "device|Device", "runner|Runner", "#ratio|Change", "#low_ratio|From",
                        "#high_ratio|To", "#clock_ratio|Clock", "tier|How sure", "role|Role",
                        "bad|First bad"),
        rows=tuple(_change_row(change, series[change.series], roles.get(change.id, "")) for change in changes
                   if change.series in series),
        empty="no change belongs to it any more",
    )  # fmt: skip


def _change_row(stored: StoredChange, series: Series, role: str) -> tuple[object, ...]:
    ends = [None if end is None else math.exp(end) for end in (stored.low_ratio, stored.high_ratio)]
    sure = stored.tier == "confirmed"
    return (
        series_cell(series), series.device, series.testbed.name,
        change(math.exp(stored.effect_ratio), direction=series.metric.direction, sure=sure),
        *(Cell(value=end, text="–" if end is None else percent(end)) for end in ends), _clock(stored), stored.tier,
        role,
        Cell(value=stored.rev_hi, text=sha_text(stored.rev_hi)),
    )  # fmt: skip


def _clock(change: StoredChange) -> Cell:
    """Return the change with the effect of the clock removed, where the clock was recorded."""
    ratio = change.evidence.get("clock_ratio")
    if not isinstance(ratio, (int, float)):
        return Cell(value=None, text="unknown", kind="muted")
    return Cell(value=ratio, text=percent(ratio), hint="clock after the change over clock before")


def _blamed(attributions: Sequence[Attribution]) -> Table:
    return Table(
        name="blamed", caption="Likely causes",
        columns=columns("axis|Axis", "what|What", "before|Before", "after|After", "#score_ratio|Score",
                        "method|Method"),
        rows=tuple(
            (attribution.axis, attribution.what, attribution.before, attribution.after, attribution.score_ratio,
             attribution.method)
            for attribution in attributions
        ),
        empty="nothing is blamed yet",
    )  # fmt: skip


def _bisects(site: Site, number: int) -> Iterator[Table]:
    for number_of_bisect in site.store.browsing.bisects(number):
        bisect = site.store.investigations.bisect(number_of_bisect)
        yield Table(
            name=f"bisect{number_of_bisect}", caption=f"Search {number_of_bisect} over {bisect.axis}: {bisect.state}",
            columns=columns("#step|Step", "candidate|Candidate", "verdict|Verdict", "evidence|Evidence"),
            rows=tuple(
                (place, Cell(value=step.candidate, text=shortened(step.candidate, 60)), step.verdict,
                 _evidence(step.evidence))
                for place, step in enumerate(bisect.steps, 1)
            ),
            empty="no step was taken yet",
        )  # fmt: skip


def _evidence(evidence: Mapping[str, object]) -> Cell:
    text = json.dumps(dict(evidence))
    return Cell(value=text, text=shortened(text, 120))


def _comparisons(site: Site, series: Sequence[Series]) -> Iterator[Table]:
    pairs = [(entry, row) for entry in series[:8] for row in site.store.findings.comparisons(series=entry.id)]
    if pairs:
        yield Table(
            name="verdicts", caption="Measured again, in turns",
            columns=columns("series|Series", "verdict|Verdict", "#ratio|Change", "#low_ratio|From", "#high_ratio|To",
                            "#equal_clock_ratio|At equal clocks", "#looks|Looks", "#launches|Launches",
                            "created_ns|When"),
            rows=tuple(_comparison_row(entry, row) for entry, row in pairs),
        )  # fmt: skip


def _comparison_row(series: Series, comparison: StoredComparison) -> tuple[object, ...]:
    logs = (comparison.theta_ratio, comparison.low_ratio, comparison.high_ratio, comparison.theta_clock_ratio)
    ratios = [None if log is None else math.exp(log) for log in logs]
    kind = {"regression": "bad", "improvement": "good"}.get(comparison.verdict, "")
    return (
        series_cell(series), Cell(value=comparison.verdict, kind=kind),
        *(Cell(value=ratio, text="–" if ratio is None else percent(ratio)) for ratio in ratios), comparison.look_count,
        comparison.launch_count, time_cell(comparison.created_ns),
    )  # fmt: skip


def _events(events: Sequence[AlertEvent]) -> Table:
    return Table(
        name="events", caption="What was done",
        columns=columns("at_ns|When", "actor|Who", "from|From", "to|To", "note|Note"),
        rows=tuple(
            (time_cell(event.at_ns), event.actor, event.from_status, event.to_status, event.note)
            for event in events
        ),
    )  # fmt: skip


def _commands(site: Site, alert: AlertRow, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Yield what to type next, each with a word on what it does."""
    command = next((measure for entry in series if (measure := measure_command(entry))), "")
    if command:
        yield "Reproduce the first case", command
    if command and alert.rev_lo and alert.rev_hi:
        run = shlex.quote(f"{command} --json")
        ends = f"--good {shlex.quote(alert.rev_lo)} --bad {shlex.quote(alert.rev_hi)}"
        yield "Search the commit", f"nearpeak bisect {ends} --run {run} --alert {alert.id}{store_option(site)}"
    yield "All that the store knows", f"nearpeak alerts show {alert.id}{store_option(site)}"


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for key in site.store.browsing.alert_keys():
        yield {"alert": str(key.id)}


PAGE = Page(name="alert", path="/alerts/{alert}", build=build, everywhere=_everywhere)
