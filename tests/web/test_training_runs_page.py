"""The page of training runs: what the report of the store says, and a hint where it holds none."""

from dataclasses import replace

import pytest
from tests.unit.measurement.training.matrix_of_sleeps import PLAN, log_of

from nearpeak.api.edge.training_bench import stored_bench
from nearpeak.core.history.stored_run import Device
from nearpeak.reports.systems.training_bench_report import document_of
from nearpeak.store import open_store
from nearpeak.store.training_records import failed_record, training_record
from nearpeak.web.page_renderer import Frame, page_html
from nearpeak.web.pages import paths
from nearpeak.web.pages.training_runs import build
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Setting, Site

CELLS = tuple(PLAN.cells())


@pytest.fixture
def site(tmp_path):
    with open_store(tmp_path / "runs.db", create=True) as store:
        yield Site(store, Setting(paths=paths()))


def text_of(site):
    return page_html(build(site, Query()), Frame(site=site, page="training_runs", path="/training-runs"))


def test_it_shows_the_report_of_the_store(site):
    site.store.ingest(training_record(log_of(CELLS[0], "1" * 64)))
    other = next(cell for cell in CELLS if cell.label != CELLS[0].label)
    site.store.ingest(failed_record(other, "k" * 64, "no luck", Device(name="a processor"), None))
    view, document = build(site, Query()), document_of(stored_bench(site.store.name))
    assert view.context["document"] == document
    assert [table.name for table in view.tables] == ["epochs", "failures", "phases", "pages"]
    assert document.lead in text_of(site)
    assert "every run has failed" in text_of(site)


def test_a_log_that_lacks_what_reports_read_counts_as_none(site):
    log = log_of(CELLS[0], "1" * 64)
    record = training_record(replace(log, epochs=tuple(replace(epoch, quantities={}) for epoch in log.epochs)))
    site.store.ingest(record)
    assert [table.name for table in build(site, Query()).tables][:2] == ["epochs", "failures"]


def test_a_store_without_training_runs_says_how_they_come_there(site):
    assert build(site, Query()).tables == ()
    assert "holds no training runs" in text_of(site)
