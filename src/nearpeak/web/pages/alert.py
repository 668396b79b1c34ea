"""Dashboard page: one alert, with the size of its change, likely causes, past actions and next steps."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.stored_run import Series
from nearpeak.history.alert_queue import Wanted, place_in
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
from nearpeak.web.query_arguments import Asked
from nearpeak.web.reproduction_commands import measure_command, store_option
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site, alert_of

CHARTS = 24
"""Series that are drawn; the table holds all."""


def build(site: Site, asked: Asked) -> View:
    """Return the page of an alert."""
    number = asked.id("alert")
    alert = alert_of(site.store, number)
    members = dict(site.store.browsing.member_roles(number))
    changes = sorted(site.store.browsing.changes(ids=list(members)), key=lambda one: -abs(one.effect_ratio))
    series = {one.id: one for one in site.store.browsing.series_by_id([one.series for one in changes])}
    drawn = [series[one] for one in dict.fromkeys(one.series for one in changes) if one in series][:CHARTS]
    stack = _stack(changes)
    wish = again(site, f"/alerts/{number}", drawn, alert)
    blamed = site.store.investigations.attributions(number)
    tables = (
        _changes(changes, series, members), _stack_table(stack), _blamed(blamed), *_bisects(site, number),
        *_comparisons(site, drawn), _events(site.store.findings.events(number)), wish.jobs,
    )  # fmt: skip
    return View(
        title=f"Alert {number}", template="alert", tables=tables,
        context={
            "alert": alert, "again": wish, "charts": small_charts(site, drawn),
            "weight": weights_of(site.store.browsing.members([number])).get(number, NOTHING),
            "tables": {one.name: one for one in tables}, "shown": tables, "blamed": blamed, "stack": stack,
            "revision": _revision(site, changes), "sha": sha_text, "date": date, "percent": percent,
            "commands": tuple(_commands(site, alert, drawn)), "more": max(0, len(series) - len(drawn)),
            "is_closed": alert.status in CLOSED, "clean": clean,
            "neighbours": place_in(queue_of(site).wanted(Wanted()), number),
        },
    )  # fmt: skip


def _revision(site: Site, changes: Sequence[StoredChange]) -> str:
    """Return the subject of the first bad commit."""
    if not changes:
        return ""
    runs = site.store.browsing.runs_at([changes[0].order_key])
    return next((run.revision.subject for run in runs if run.revision), "")


def _stack(changes: Sequence[StoredChange]) -> tuple[tuple[str, str, str], ...]:
    """Return the components that changed with the first change."""
    for one in changes[:1]:
        rows = one.evidence.get("stack")
        if isinstance(rows, list):
            return tuple((str(name), str(before), str(after)) for name, before, after in rows)
    return ()


def _changes(changes: Sequence[StoredChange], series: Mapping[int, Series], roles: Mapping[int, str]) -> Table:
    return Table(
        name="changes", caption="Series that changed",
        columns=columns("series|Series", "device|Device", "runner|Runner", "#ratio|Change", "#low_ratio|From",
                        "#high_ratio|To", "#clock_ratio|Clock", "tier|How sure", "role|Role",
                        "bad|First bad"),
        rows=tuple(_change_row(one, series[one.series], roles.get(one.id, "")) for one in changes
                   if one.series in series),
        empty="no change belongs to it any more",
    )  # fmt: skip


def _change_row(one: StoredChange, series: Series, role: str) -> tuple[object, ...]:
    ends = [None if end is None else math.exp(end) for end in (one.low_ratio, one.high_ratio)]
    sure = one.tier == "confirmed"
    return (
        series_cell(series), series.device, series.testbed.name,
        change(math.exp(one.effect_ratio), direction=series.metric.direction, sure=sure),
        *(Cell(value=end, text="–" if end is None else percent(end)) for end in ends), _clock(one), one.tier, role,
        Cell(value=one.rev_hi, text=sha_text(one.rev_hi)),
    )  # fmt: skip


def _clock(one: StoredChange) -> Cell:
    """Return what is left of a change when the clock is taken out, as far as it was recorded with it."""
    ratio = one.evidence.get("clock_ratio")
    if not isinstance(ratio, (int, float)):
        return Cell(value=None, text="unknown", kind="muted")
    return Cell(value=ratio, text=percent(ratio), hint="clock after the change over clock before")


def _stack_table(stack: Sequence[tuple[str, str, str]]) -> Table:
    return Table(
        name="stack", caption="Software that changed with it",
        columns=columns("component|Component", "before|Before", "after|After"),
        rows=tuple(tuple(word for word in row) for row in stack), empty="the same software on both sides",
    )  # fmt: skip


def _blamed(found: Sequence[Attribution]) -> Table:
    return Table(
        name="blamed", caption="What may be behind it",
        columns=columns("axis|Axis", "what|What", "before|Before", "after|After", "#score_ratio|Score",
                        "method|Method"),
        rows=tuple(
            (one.axis, one.what, one.before, one.after, one.score_ratio, one.method)
            for one in found
        ),
        empty="nothing is blamed yet",
    )  # fmt: skip


def _bisects(site: Site, number: int) -> Iterator[Table]:
    for one in site.store.browsing.bisects(number):
        found = site.store.investigations.bisect(one)
        yield Table(
            name=f"bisect{one}", caption=f"Search {one} over {found.axis}: {found.state}",
            columns=columns("#step|Step", "candidate|Candidate", "verdict|Verdict", "evidence|Evidence"),
            rows=tuple(
                (place, Cell(value=step.candidate, text=shortened(step.candidate, 60)), step.verdict,
                 _evidence(step.evidence))
                for place, step in enumerate(found.steps, 1)
            ),
            empty="no step was taken yet",
        )  # fmt: skip


def _evidence(found: Mapping[str, object]) -> Cell:
    text = json.dumps(dict(found))
    return Cell(value=text, text=shortened(text, 120))


def _comparisons(site: Site, series: Sequence[Series]) -> Iterator[Table]:
    found = [(one, row) for one in series[:8] for row in site.store.findings.comparisons(series=one.id)]
    if found:
        yield Table(
            name="verdicts", caption="Measured again, in turns",
            columns=columns("series|Series", "verdict|Verdict", "#ratio|Change", "#low_ratio|From", "#high_ratio|To",
                            "#equal_clock_ratio|At equal clocks", "#looks|Looks", "#launches|Launches",
                            "created_ns|When"),
            rows=tuple(_comparison_row(one, row) for one, row in found),
        )  # fmt: skip


def _comparison_row(series: Series, one: StoredComparison) -> tuple[object, ...]:
    logs = (one.theta_ratio, one.low_ratio, one.high_ratio, one.theta_clock_ratio)
    ratios = [None if log is None else math.exp(log) for log in logs]
    kind = {"regression": "bad", "improvement": "good"}.get(one.verdict, "")
    return (
        series_cell(series), Cell(value=one.verdict, kind=kind),
        *(Cell(value=ratio, text="–" if ratio is None else percent(ratio)) for ratio in ratios), one.look_count,
        one.launch_count, time_cell(one.created_ns),
    )  # fmt: skip


def _events(events: Sequence[AlertEvent]) -> Table:
    return Table(
        name="events", caption="What was done",
        columns=columns("at_ns|When", "actor|Who", "from|From", "to|To", "note|Note"),
        rows=tuple(
            (time_cell(one.at_ns), one.actor, one.from_status, one.to_status, one.note)
            for one in events
        ),
    )  # fmt: skip


def _commands(site: Site, alert: AlertRow, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Yield what to type next, each with a word on what it does."""
    command = next((found for one in series if (found := measure_command(one))), "")
    if command:
        yield "Reproduce the first case", command
    if command and alert.rev_lo and alert.rev_hi:
        run = shlex.quote(f"{command} --json")
        ends = f"--good {shlex.quote(alert.rev_lo)} --bad {shlex.quote(alert.rev_hi)}"
        yield "Search the commit", f"nearpeak bisect {ends} --run {run} --alert {alert.id}{store_option(site)}"
    yield "All that the store knows", f"nearpeak alerts show {alert.id}{store_option(site)}"


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for one in site.store.browsing.alert_keys():
        yield {"alert": str(one.id)}


PAGE = Page(name="alert", path="/alerts/{alert}", build=build, everywhere=_everywhere)
