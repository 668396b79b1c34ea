"""What a notebook shows of answers: pieces of HTML without script, and the text where nothing draws them."""

import json
import re
import subprocess
import sys

import pytest

import nearpeak
from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.answers.notebook_display import html_of
from nearpeak.core.work.workload import Call, Workload

CASE = nearpeak.case("gemm", m=64, n=64, k=64, dtype="fp32")
EVENTS = {
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "<b>gemm</b>", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
    ],
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
    "schemaVersion": 1,
}  # fmt: skip


def analysis():
    calls = (Call(case=CASE, operator="gemm", phase="forward"),)
    return nearpeak.analyze(Workload(name="<script>one", step="sweep", calls=calls), ["h100_sxm"])


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (lambda: nearpeak.bound(CASE, "h100_sxm"), "limited by"),
        (lambda: nearpeak.predict(CASE, "h100_sxm"), "limit"),
        (analysis, "&lt;script&gt;one"),
        (lambda: next(nearpeak.measure(CASE, "null")), "median"),
    ],
    ids=["bound", "prediction", "analysis", "measurement"],
)
def test_an_answer_is_a_small_piece_of_html_without_script_that_keeps_its_style_to_itself(answer, word):
    html = answer()._repr_html_()
    assert word in html
    assert "<script" not in html
    assert "<html" not in html
    assert "--why" not in html
    assert len(html) < 50_000
    rules = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    selectors = [part for rule in re.findall(r"([^{}]+)\{", rules) for part in rule.split(",")]
    assert all(selector.strip().startswith(".nearpeak-view") for selector in selectors)


def test_the_timeline_of_a_trace_is_drawn_in_a_closed_frame(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(EVENTS), encoding="utf-8")
    html = analyze_trace(tmp_path / "trace.json")._repr_html_()
    before, frame, after = re.split(r"(?s)(<iframe .*?</iframe>)", html)
    assert 'sandbox="allow-scripts"' in frame
    assert "&lt;canvas" in frame
    assert "<script" not in before + frame + after
    assert "<b>gemm" not in html


def test_without_the_registered_view_there_is_none_and_notebooks_show_text(monkeypatch):
    monkeypatch.setattr("nearpeak.core.answers.notebook_display._VIEWS", {})
    assert html_of(nearpeak.bound(CASE, "h100_sxm")) is None


def test_showing_answers_costs_nothing_at_import():
    code = "import sys, nearpeak; print('nearpeak.reports' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
