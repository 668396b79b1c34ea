"""Pages of saved answers: precision, conversion and tuning from a folder, and one line for a file that is damaged."""

import os
from dataclasses import replace

import pytest
from tests.unit.reports.tuning.test_study_report import STUDY
from tests.web.test_pages import Page as Read

from nearpeak.conversion.engine_parts import (
    SUPPORTED,
    EngineCoverage,
    EnginePiece,
    Interval,
    JudgedNode,
    PlanTime,
    TargetPlan,
    Verdict,
)
from nearpeak.errors import NotFoundError
from nearpeak.precision.quantisation.executed_products import ExecutedGraph, ExecutedProduct
from nearpeak.precision.quantisation.precision_table import PrecisionRow, PrecisionTable, SchemeRun, TargetTime
from nearpeak.reports.conversion import engine_coverage_report
from nearpeak.reports.quantisation import executed_precision_report, precision_table_report
from nearpeak.reports.tuning import study_report
from nearpeak.store import open_store
from nearpeak.tuning.study_journal import study_journal
from nearpeak.web.page_renderer import Frame, page_html, table_csv
from nearpeak.web.pages import PAGES, paths
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Setting, Site

PRODUCT = ExecutedProduct(name="conv", operator="QLinearConv", precision="int8", mac_count=9)
GRAPH = ExecutedGraph(
    name="net.onnx", engine="ONNX Runtime", node_count=2, products=(PRODUCT,), quantise_count=1, dequantise_count=0,
    loose_bytes=4, unlisted_count={"Odd": 1},
)  # fmt: skip
RUN = SchemeRun(scheme="fp32", text="as it is", precision="fp32", measured_s=2e-3, executed=GRAPH, file_bytes=10)
TABLE = PrecisionTable(
    name="net.onnx", targets=("h100_sxm",), runtime="ONNX Runtime", verdicts=("int8: <b>no</b>",),
    layer_choice={"conv": "int8"},
    rows=(
        PrecisionRow(
            precision="fp32", weight_bytes=8, activation_bytes=None, runs=(RUN,),
            times=(TargetTime(target="h100_sxm", bound_s=1e-6, predicted_s=2e-6, low_s=1e-6, high_s=3e-6),),
        ),
    ),
)  # fmt: skip
TIME = Interval(low_s=1e-6, time_s=2e-6, high_s=3e-6)
PLAN = PlanTime(total=TIME, engine=TIME, left=TIME, border=TIME, host=TIME, piece_count=1)
COVERAGE = EngineCoverage(
    model="net.onnx", engine="tensorrt 10.1", source="a table", opset="18", boundary_count=0, boundary_bytes=0,
    nodes=(JudgedNode(key="conv", kind="Conv", verdict=Verdict(verdict=SUPPORTED), flop=3),),
    pieces=(EnginePiece(is_converted=True, keys=("conv",), kinds={"Conv": 1}),), breaks=(), changes=(),
    plans=(
        TargetPlan(
            target="h100_sxm", as_is=PLAN, whole=PLAN, refused=None, plugins=(), pieces=(TIME,), unpredicted={}
        ),
    ),
)  # fmt: skip
ANSWERS = {
    "precision": {
        "net.json": precision_table_report.to_json(TABLE), "executed.json": executed_precision_report.to_json(GRAPH),
    },
    "conversion": {"engine.json": engine_coverage_report.to_json(COVERAGE)},
    "tuning": {"study.json": study_report.to_json(STUDY)},
}  # fmt: skip


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    for files in ANSWERS.values():
        for name, text in files.items():
            (folder / name).write_text(text)
    with open_store(tmp_path / "empty.db", create=True) as store:
        yield Site(store, Setting(paths=paths(), reports=folder))


def built(site, page, **query):
    view = PAGES[page].build(site, Query(query=query))
    return view, page_html(view, Frame(site=site, page=page, path=paths()[page]))


def journal(site, study, name="journal.jsonl"):
    """Write the journal of a study into the folder; one that goes on ends with a trial."""
    with study_journal(site.setting.reports / name, {"space": study.space}) as held:
        held.state(replace(study, stop_reason="", winner=None))
        for trial in study.trials:
            held.add(trial)
        for contest in study.contests:
            held.add_contest(contest)
        if study.stop_reason:
            held.state(study)


@pytest.mark.parametrize(
    ("page", "name", "document"),
    [
        ("precision", "net.json", precision_table_report.document_of(TABLE)),
        ("precision", "executed.json", executed_precision_report.document_of(GRAPH)),
        ("conversion", "engine.json", engine_coverage_report.document_of(COVERAGE)),
        ("tuning", "study.json", study_report.document_of(STUDY)),
    ],
)
def test_a_saved_answer_is_shown_as_its_report_says_it(site, page, name, document):
    view, text = built(site, page, answer=name)
    assert view.context["document"].lead == document.lead
    assert view.context["document"].figures == document.figures
    assert view.tables
    assert len({table.name for table in view.tables}) == len(view.tables)
    assert all(table.caption for table in view.tables)
    assert all(table_csv(table) for table in view.tables)
    read = Read(text.replace("<circle", "<path").replace("</circle>", "</path>"))
    assert read.faults == []
    assert len(read.ids) == len(set(read.ids))
    assert "<b>" not in text


def test_a_journal_is_shown_while_its_search_goes_on_and_as_the_study_at_its_end(site):
    journal(site, replace(STUDY, stop_reason="", contests=(), winner=None))
    view, text = built(site, "tuning", answer="journal.jsonl")
    assert view.context["document"].lead == (
        "Goes on: 5 evaluations until now, best so far block=64, 1 ms, 1.2 × the achievable time."
    )
    course = next(table for table in view.tables if table.name == "course")
    assert [row[2] for row in course.rows] == [2e-3, 1e-3]
    figures = {name: value for name, value, _ in view.context["document"].figures}
    assert figures["distance"] == "1.25 ×"
    assert (figures["pruned"], figures["wrong or failed"]) == ("1", "2")
    assert text.count("<circle") == len(STUDY.trials)
    journal(site, STUDY, "ended.jsonl")
    view, _ = built(site, "tuning", answer="ended.jsonl")
    assert view.context["document"].lead == study_report.document_of(STUDY).lead


def test_the_newest_answer_stands_first_and_a_changed_file_is_read_again(site):
    folder = site.setting.reports
    os.utime(folder / "net.json", ns=(1, 1))
    assert built(site, "precision")[0].context["names"] == ("executed.json", "net.json")
    assert "int8" in built(site, "precision")[0].context["document"].title
    (folder / "executed.json").write_text(executed_precision_report.to_json(replace(GRAPH, products=())))
    assert built(site, "precision")[0].context["document"].title == "net.onnx: forms no product"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "nearpeak tuning study"', "broken.json: cannot be read as answer"),
        ('{"kind": "nearpeak tuning study", "schema_version": 9}', "broken.json: has schema version 9"),
        ('{"kind": "nearpeak tuning study", "schema_version": 1}', "broken.json: has no 'space'"),
        (study_report.to_json(STUDY).replace('"position": 1', '"position": "x"'), "broken.json.trials[0].position"),
        ('{"kind": "nearpeak tuning study", "x": ' + "[" * 99_999, "nested too deeply"),
    ],
)
def test_a_damaged_answer_is_one_line_on_its_page(site, text, message):
    (site.setting.reports / "broken.json").write_text(text)
    view, shown = built(site, "tuning", answer="broken.json")
    assert message in view.context["error"]
    assert "\n" not in view.context["error"]
    assert str(site.setting.reports) not in shown


@pytest.mark.parametrize("name", ["../secret.json", "absent.json", "net.json", "link.json"])
def test_only_answers_of_its_kind_in_the_folder_are_shown(site, name, tmp_path):
    (tmp_path / "secret.json").write_text(study_report.to_json(STUDY))
    (site.setting.reports / "link.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(NotFoundError):
        built(site, "tuning", answer=name)


def test_an_empty_folder_says_how_answers_come_there(site):
    for path in site.setting.reports.iterdir():
        path.unlink()
    for page in ANSWERS:
        view, text = built(site, page)
        assert view.tables == ()
        assert "serve --reports" in text
