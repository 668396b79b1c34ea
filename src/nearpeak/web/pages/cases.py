"""Dashboard page: all cases, grouped by kernel."""

from collections import Counter

from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import case_link, clean, workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

ROWS = 200


def build(site: Site, asked: Asked) -> View:
    """Return a page of cases."""
    words = [word.lower() for word in asked.words()]
    found = [one for one in site.store.browsing.cases() if all(word in f"{one[1]} {one[2]}".lower() for word in words)]
    limit, start = asked.rows(ROWS)
    table = Table(
        name="cases", caption="Cases", columns=columns("case|Case", "kernel|Kernel", "identity|Identity"),
        rows=tuple(
            (Cell(value=label, text=clean(label), link=case_link(digest)), Cell(value=name, link=workload_link(name)),
             Cell(value=digest, text=clean(digest)[:16])) for digest, label, name in found[start : start + limit]
        ),
        empty="no case fits", has_filter=site.setting.is_static,
    )  # fmt: skip
    return View(
        title="Cases", template="cases", tables=(table,),
        context={"table": table, "total": len(found), "start": start, "limit": limit, "query": asked.text("q"),
                 "page": start // max(limit, 1), "kernels": len(Counter(one[2] for one in found))},
    )  # fmt: skip


PAGE = Page(name="cases", path="/cases", build=build)
