"""The pages of plans: an answer with tables, texts and pictures, and one line for what it does not answer."""

import pytest

from nearpeak.reports.document import Details, Document, Drawing, Text, Timeline
from nearpeak.web.page_renderer import Frame, page_html
from nearpeak.web.page_view import MOST_SLICES, answer_view
from nearpeak.web.pages import paths
from nearpeak.web.pages.plan import USUAL
from nearpeak.web.pages.service import build
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Setting, Site

ASKED = {
    "model": "llama-3.2-1b", "on": "1xh100_sxm", "settings": "chunk=256,max_batch=8", "rate": "5/s", "input": "64",
    "output": "16", "price": "2",
}  # fmt: skip


def test_a_question_is_answered_with_tables():
    view = build(None, Query(query=ASKED))
    assert view.context["error"] == ""
    assert "requests/s" in view.context["document"].lead
    assert {table.name for table in view.tables} >= {"latencies", "step"}
    assert len({table.name for table in view.tables}) == len(view.tables), "tables are exported by name"
    assert not [column for table in view.tables for column in table.columns if column.unit == "bar"]


@pytest.mark.parametrize(("name", "value", "message"), [
    ("rate", "1e5/s", "answers for rates up to"), ("settings", "chunk=256", "needs a layout"),
    ("settings", "chunk=99999999,max_batch=8", "chunks and contexts up to"),
    ("engine", "/etc/x.toml", "reads no files"),
    ("input", "999999", "requests up to"), ("model", "no-such-model", "no-such-model"),
])  # fmt: skip
def test_what_it_does_not_answer_is_said_in_one_line(name, value, message):
    view = build(None, Query(query=ASKED | {name: value}))
    assert message in view.context["error"]
    assert view.context["document"] is None


def test_pages_of_plans_show_texts_drawings_and_timeline_where_it_is_not_too_long():
    lanes = Timeline(rows=("stage 0",), slices=[(0, 0, 5, "0F0", "forward")], window_ns=5, colours={})
    blocks = [lanes, Drawing("Queue", lambda: "<svg/>"), Details("Why", (Text("Trust: measured 90 %."),))]
    frame = Frame(site=Site(None, Setting(paths=paths())), page="plan", path="/plan")
    shared = {"asked": dict.fromkeys(USUAL, ""), "numbers": {"sequence": 1, "global_batch": 0}, "error": ""}
    page = page_html(answer_view("Plan", "plan", Document(blocks=blocks), **shared), frame)
    for text in ('id="picture"', "timeline.js", '"names":["0F0"]', "<h2>Queue</h2><svg/>", "Trust: measured 90 %."):
        assert text in page
    many = Timeline(rows=lanes.rows, slices=lanes.slices * (MOST_SLICES + 1), window_ns=5, colours={})
    view = answer_view("Plan", "plan", Document(blocks=[many]), **shared)
    assert not view.context["timeline"]
    assert "20,001 slices" in view.context["notes"][0]
