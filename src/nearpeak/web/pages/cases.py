"""Dashboard page: all cases, grouped by kernel."""

from collections import Counter

from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import case_link, clean, workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 200


def build(site: Site, query: Query) -> View:
    """Return a page of cases."""
    words = [word.lower() for word in query.words()]
    matches = [
        row for row in site.store.browsing.cases() if all(word in f"{row[1]} {row[2]}".lower() for word in words)
    ]
    limit, start = query.rows(ROWS)
    table = Table(
        name="cases", caption="Cases", columns=columns("case|Case", "kernel|Kernel", "identity|Identity"),
        rows=tuple(
            (Cell(value=label, text=clean(label), link=case_link(digest)), Cell(value=name, link=workload_link(name)),
             Cell(value=digest, text=clean(digest)[:16])) for digest, label, name in matches[start : start + limit]
        ),
        empty="no case fits", has_filter=site.setting.is_static,
    )  # fmt: skip
    return View(
        title="Cases", template="cases", tables=(table,),
        context={"table": table, "total": len(matches), "start": start, "limit": limit, "query": query.text("q"),
                 "page": start // max(limit, 1), "kernels": len(Counter(row[2] for row in matches))},
    )  # fmt: skip


PAGE = Page(name="cases", path="/cases", build=build)
