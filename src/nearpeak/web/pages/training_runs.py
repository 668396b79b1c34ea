"""Dashboard page: training runs of the store by cell of their matrix, their stalls, energy, page cache, failures."""

from nearpeak.errors import NotFoundError
from nearpeak.reports.document import Document
from nearpeak.web.page_view import View, parts_of
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

CELLS, RUNS = 200, 50
"""Newest cells, and newest runs of each, that the page reads."""


def build(site: Site, _: Query) -> View:
    """Return what `nearpeak train-bench report` says of the store; reading all runs takes long, so it is remembered."""
    try:
        document = site.remembered(
            "training runs", lambda: _document(site), site.store.browsing.mark()[:1], is_lazy=True
        )
    except NotFoundError:
        document = None
    tables, notes = parts_of(document) if document else ((), ())
    return View(
        title="Training runs", template="training_runs", tables=tables,
        context={"document": document, "tables": tables, "notes": notes, "most_cells": CELLS, "most_runs": RUNS},
    )  # fmt: skip


def _document(site: Site) -> Document:
    """Return the report of the training runs.

    Raises:
        NotFoundError: the store holds none.
    """
    from nearpeak.api.edge.training_bench import bench_of_store
    from nearpeak.reports.systems.training_bench_report import document_of

    return document_of(bench_of_store(site.store, cell_count=CELLS, run_count=RUNS))


PAGE = Page(name="training_runs", path="/training-runs", build=build, title="Training runs", rank=7)
