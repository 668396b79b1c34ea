"""Dashboard page: baselines, suppressions, expectations, gates, write tokens and the log of actions."""

import json
from collections import Counter
from collections.abc import Iterator

from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import sha_text, time_cell
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

NEWEST = 100


def build(site: Site, asked: Asked) -> View:
    """Return the settings of the store."""
    tables = tuple(_tables(site)) + (tuple(_private(site)) if asked.is_admin else ())
    info = {} if site.setting.is_static else site.store.info()
    return View(
        title="Settings",
        template="settings",
        tables=tables,
        context={"tables": tables, "info": info, "is_admin": asked.is_admin},
    )


def _tables(site: Site) -> Iterator[Table]:
    policies = site.store.policies
    yield Table(
        name="baselines", caption="Baselines", columns=columns("name|Name", "kind|Kind", "selector|What"),
        rows=tuple((one.name, one.kind, one.selector)
                   for _, one in sorted(policies.baselines().items())), empty="no baseline has a name",
    )  # fmt: skip
    yield Table(
        name="suppressions", caption="Series that nobody is told of",
        columns=columns("selector|Series", "reason|Reason", "author|Who", "until_ns|Until"),
        rows=tuple((json.dumps(dict(one.selector)), one.reason, one.author,
                    time_cell(one.until_ns)) for one in policies.suppressions(None if site.now_ns else 0)),
        empty="none",
    )  # fmt: skip
    yield Table(
        name="expectations", caption="Changes that are meant",
        columns=columns("sha|Commit", "selector|Series", "#low_ratio|From", "#high_ratio|To", "author|Who"),
        rows=tuple((Cell(value=one.sha, text=sha_text(one.sha)), json.dumps(dict(one.selector)),
                    Cell(value=one.low_ratio, text=f"{one.low_ratio:+.1%}"),
                    Cell(value=one.high_ratio, text=f"{one.high_ratio:+.1%}"), one.author)
                   for one in policies.expectations()), empty="none",
    )  # fmt: skip
    yield Table(
        name="gates", caption="Gates, newest first",
        columns=columns("sha|Commit", "verdict|Verdict", "#exit_code|Exit code", "counts|Cases"),
        rows=tuple((Cell(value=one.revision, text=sha_text(one.revision)),
                    Cell(value=one.verdict, kind={"pass": "good", "fail": "bad"}.get(one.verdict, "warn")),
                    one.exit_code, json.dumps(Counter(line.verdict for line in one.lines)))
                   for one in policies.gates()[::-1][:NEWEST]), empty="no gate was kept: nearpeak gate --save",
    )  # fmt: skip


def _private(site: Site) -> Iterator[Table]:
    """Yield who may write, without their tokens, and what they did."""
    yield Table(
        name="tokens", caption="Tokens",
        columns=columns("id|Number", "name|Whose", "scope|May", "created_ns|Made", "expires_ns|Ends", "state|State"),
        rows=tuple((one.id, one.name, one.scope, time_cell(one.created_ns), time_cell(one.expires_ns),
                    "holds" if one.holds(site.now_ns or 0) else "ended")
                   for one in site.store.access.tokens()),
        empty="nobody may write: nearpeak token add NAME --scope submit",
    )  # fmt: skip
    yield Table(
        name="audit", caption="What was done through the web, newest first",
        columns=columns("at_ns|When", "actor|Who", "action|What", "object|To what", "note|Note"),
        rows=tuple((time_cell(one.at_ns), one.actor, one.action, one.object,
                    one.note) for one in site.store.access.audit(NEWEST)), empty="nothing yet",
    )  # fmt: skip


PAGE = Page(name="settings", path="/settings", build=build, title="Settings", rank=10)
