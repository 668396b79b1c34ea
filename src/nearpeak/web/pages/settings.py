"""Dashboard page: baselines, suppressions, expectations, gates, write tokens and the log of actions."""

import json
from collections import Counter
from collections.abc import Iterator

from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import sha_text, time_cell
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

NEWEST = 100


def build(site: Site, query: Query) -> View:
    """Return the settings of the store."""
    tables = tuple(_tables(site)) + (tuple(_private(site)) if query.is_admin else ())
    info = {} if site.setting.is_static else site.store.info()
    return View(
        title="Settings",
        template="settings",
        tables=tables,
        context={"tables": tables, "info": info, "is_admin": query.is_admin},
    )


def _tables(site: Site) -> Iterator[Table]:
    policies = site.store.policies
    yield Table(
        name="baselines", caption="Baselines", columns=columns("name|Name", "kind|Kind", "selector|What"),
        rows=tuple((entry.name, entry.kind, entry.selector)
                   for _, entry in sorted(policies.baselines().items())), empty="no baseline has a name",
    )  # fmt: skip
    yield Table(
        name="suppressions", caption="Suppressed series",
        columns=columns("selector|Series", "reason|Reason", "author|Who", "until_ns|Until"),
        rows=tuple((json.dumps(dict(entry.selector)), entry.reason, entry.author,
                    time_cell(entry.until_ns)) for entry in policies.suppressions(None if site.now_ns else 0)),
        empty="none",
    )  # fmt: skip
    yield Table(
        name="expectations", caption="Changes that are meant",
        columns=columns("sha|Commit", "selector|Series", "#low_ratio|From", "#high_ratio|To", "author|Who"),
        rows=tuple((Cell(value=entry.sha, text=sha_text(entry.sha)), json.dumps(dict(entry.selector)),
                    Cell(value=entry.low_ratio, text=f"{entry.low_ratio:+.1%}"),
                    Cell(value=entry.high_ratio, text=f"{entry.high_ratio:+.1%}"), entry.author)
                   for entry in policies.expectations()), empty="none",
    )  # fmt: skip
    yield Table(
        name="gates", caption="Gates, newest first",
        columns=columns("sha|Commit", "verdict|Verdict", "#exit_code|Exit code", "counts|Cases"),
        rows=tuple((Cell(value=entry.revision, text=sha_text(entry.revision)),
                    Cell(value=entry.verdict, kind={"pass": "good", "fail": "bad"}.get(entry.verdict, "warn")),
                    entry.exit_code, json.dumps(Counter(line.verdict for line in entry.lines)))
                   for entry in policies.gates()[::-1][:NEWEST]), empty="no gate was saved: nearpeak gate --save",
    )  # fmt: skip


def _private(site: Site) -> Iterator[Table]:
    """Yield the owners of write tokens, without the tokens, and the log of their actions."""
    yield Table(
        name="tokens", caption="Tokens",
        columns=columns("id|Number", "name|Whose", "scope|May", "created_ns|Made", "expires_ns|Ends", "state|State"),
        rows=tuple((entry.id, entry.name, entry.scope, time_cell(entry.created_ns), time_cell(entry.expires_ns),
                    "holds" if entry.holds(site.now_ns or 0) else "ended")
                   for entry in site.store.access.tokens()),
        empty="no tokens: nearpeak token add NAME --scope submit",
    )  # fmt: skip
    yield Table(
        name="audit", caption="What was done through the web, newest first",
        columns=columns("at_ns|When", "actor|Who", "action|What", "object|To what", "note|Note"),
        rows=tuple((time_cell(entry.at_ns), entry.actor, entry.action, entry.object,
                    entry.note) for entry in site.store.access.audit(NEWEST)), empty="nothing yet",
    )  # fmt: skip


PAGE = Page(name="settings", path="/settings", build=build, title="Settings", rank=10)
