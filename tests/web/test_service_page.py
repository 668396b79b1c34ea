"""The page of services: an answer with its tables, and one line for what it does not answer."""

import pytest

from nearpeak.web.pages.service import build
from nearpeak.web.query_arguments import Query

ASKED = {
    "model": "llama-3.2-1b", "on": "1xh100_sxm", "settings": "chunk=256,max_batch=8", "rate": "5/s", "input": "64",
    "output": "16", "price": "2",
}  # fmt: skip


def test_a_question_is_answered_with_tables():
    view = build(None, Query(query=ASKED))
    assert view.context["error"] == ""
    assert "requests/s" in view.context["document"].lead
    assert {table.name for table in view.tables} >= {"latencies", "step"}
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
