"""A page of glyphs through functions and a model: text, boxes, padding, nodes on one clock, errors of one line."""

import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import application
from nearpeak.errors import MeasureError, SpecError

pytest.importorskip("onnxruntime")
HERE = __file__.rpartition("/")[0]
_spec = importlib.util.spec_from_file_location("glyph_page", f"{HERE}/glyph_page.py")
glyphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(glyphs)

LINES = ["abcdef", "fed", "aabbccddeeff", "ce", "badcafe"]


def run(path, *words):
    return CliRunner().invoke(application(), ["plan", "pipeline", str(path), *words])


def functions_of(path):
    spec = importlib.util.spec_from_file_location(f"stages_{path.parent.name}", path.parent / "glyph_stages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result_of(path):
    """Return what the last stage gives, and what was recorded."""
    from nearpeak.measurement.pipelines.pipeline_execution import run_pipeline
    from nearpeak.systems.edge.pipeline_file import pipeline_of
    from nearpeak.systems.edge.width_buckets import batches_of

    return run_pipeline(pipeline_of(path), path.parent, str(path.parent / "page.npy"), batches_of)


def test_buckets_lower_padding_by_exactly_what_is_predicted_and_keep_the_text(tmp_path):
    answers = {}
    for order in ("given", "sorted"):
        folder = tmp_path / order
        folder.mkdir()
        path = glyphs.write_pipeline(folder, LINES, order=order)
        run_of_page = result_of(path)
        assert run_of_page.result == LINES
        blocks = [span.in_bytes for span in run_of_page.recording.spans if span.name == "recognise"]
        (padding,) = json.loads(run(path, "--json").stdout)["paddings"]
        answers[order] = sum(blocks), padding
    saved = answers["given"][1]["padded_column_count"] - answers["given"][1]["sorted_column_count"]
    assert saved > 0
    assert answers["given"][0] - answers["sorted"][0] == saved * glyphs.HIGH * 4
    assert answers["sorted"][1]["padded_column_count"] == answers["given"][1]["sorted_column_count"]


def test_boxes_are_the_rectangles_that_were_drawn(tmp_path):
    path = glyphs.write_pipeline(tmp_path, LINES)
    found = functions_of(path).boxes(np.load(tmp_path / "page.npy"))
    for row, (line, (top, bottom, left, right)) in enumerate(zip(LINES, found, strict=True)):
        drawn = (5 + row * 12, 12 + row * 12, 4, 4 + (len(line) - 1) * glyphs.PITCH + glyphs.WIDE)
        inner = max(min(bottom, drawn[1]) - max(top, drawn[0]), 0) * max(min(right, drawn[3]) - max(left, drawn[2]), 0)
        both = (bottom - top) * (right - left) + (drawn[1] - drawn[0]) * (drawn[3] - drawn[2]) - inner
        assert inner / both >= 0.9


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_the_text_is_the_collapse_of_the_most_probable_of_all_alignments(tmp_path, steps):
    decode = functions_of(glyphs.write_pipeline(tmp_path, ["a"])).decode
    draw = np.random.default_rng(steps)
    for _ in range(5):
        scores = draw.random((steps, 3))  # two symbols and the blank
        best = max(itertools.product(range(3), repeat=steps),
                   key=lambda path: sum(scores[step, symbol] for step, symbol in enumerate(path)))  # fmt: skip
        collapsed = [symbol for symbol, _ in itertools.groupby(best) if symbol != 2]
        assert decode(scores) == "".join(glyphs.SYMBOLS[symbol] for symbol in collapsed)


def test_nodes_lie_within_the_stage_that_ran_them_and_the_trace_reads_back(tmp_path):
    path, trace = glyphs.write_pipeline(tmp_path, LINES), tmp_path / "page.json"
    done = run(
        path, "--measure", "--rounds", "2", "--json", "--perfetto", str(trace), "--html", str(tmp_path / "p.html")
    )
    assert done.exit_code == 0, (done.output, done.exception)
    answer = json.loads(done.stdout)
    assert answer["node_count"] >= 2 * 2 * 2  # passes, batches, nodes
    assert 0 < answer["coverage_ratio"] <= 1
    names = [row["name"] for row in answer["stages"]]
    assert names == ["load", "detect", "detect/rows", "crop", "recognise.pad", "recognise", "decode"]
    events = [event for event in json.loads(trace.read_text("utf-8"))["traceEvents"] if event["ph"] == "X"]
    calls = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == "recognise"]
    nodes = [event for event in events if "Conv" in event["name"] or "Transpose" in event["name"]]
    slack = 1e6 * answer["clock_error_s"] + 2
    assert len(calls) == 4
    assert nodes
    for node in nodes:
        assert any(start - slack <= node["ts"] and node["ts"] + node["dur"] <= stop + slack for start, stop in calls)
    from nearpeak.traces.formats.chrome_json import FORMAT

    assert len(FORMAT.read(trace)) == len(events)


def test_a_saved_page_calibrates_another_and_models_are_predicted_on_a_board(tmp_path, monkeypatch):
    from nearpeak.api.edge import stream_plan

    asked = []
    monkeypatch.setattr(stream_plan, "model_time", lambda model, board, shapes, engine: asked.append(shapes) or
                        stream_plan.ModelTime(2e-3, 3e-3, 1e-4))  # fmt: skip
    path, saved = glyphs.write_pipeline(tmp_path, LINES), tmp_path / "page.json"
    assert run(path, "--json", "--save", str(saved)).exit_code == 0
    done = run(path, "--text", "--calibration", str(saved), "--target", "jetson_orin_nano:25W", "--why")
    assert done.exit_code == 0, (done.output, done.exception)
    text = " ".join(done.stdout.split())
    assert "By the calibration page page.npy" in text
    assert "the models take 4 ms a page" in text  # two batches of unlike width
    assert len(set(asked)) == 2


@pytest.mark.parametrize(("old", "new", "kind", "message"), [
    ("return found\n", "raise ValueError('no ink')\n", MeasureError, "ValueError: no ink (glyph_stages.py, line"),
    ("def crops", "def other", SpecError, "stage crop"),
])  # fmt: skip
def test_a_stage_that_raises_or_is_missing_is_one_line(tmp_path, old, new, kind, message):
    path = glyphs.write_pipeline(tmp_path, LINES)
    functions = tmp_path / "glyph_stages.py"
    functions.write_text(functions.read_text("utf-8").replace(old, new), "utf-8")
    done = run(path, "--text")
    assert isinstance(done.exception, kind)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_page_a_calibration_and_a_model_must_be_there(tmp_path):
    path = glyphs.write_pipeline(tmp_path, LINES)
    (tmp_path / "bad.json").write_text("[]", "utf-8")
    assert "is no JSON" in str(run(path, "--calibration", str(tmp_path / "bad.json")).exception)
    (tmp_path / "rec.onnx").write_bytes(b"none")
    assert "stage recognise" in str(run(path).exception)
    (tmp_path / "rec.onnx").unlink()
    assert "not found" in str(run(path).exception)
    path.write_text(path.read_text("utf-8").replace('input = "page.npy"', ""), "utf-8")
    assert "--input: is missing" in str(run(path).exception)


def test_stages_cost_nothing_without_a_recorder():
    with nearpeak.stage("alone"):
        pass


PAGE_FAULTS = """
import resource, sys
from pathlib import Path
from nearpeak.core.edge.stage_pipeline import PipelineStage, StagePipeline
from nearpeak.measurement.pipelines.pipeline_execution import run_pipeline

stages = (PipelineStage(name="f", call="f.py:f"),)
print(run_pipeline(StagePipeline(name="p", stages=stages), Path(sys.argv[1]), "", None, rounds=2, warm_up=1).result[-1])
"""
FUNCTION = """
import resource
import numpy as np
counts = []


def f(page):
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    twice = np.ones(20 << 20, np.uint8) + 1
    counts.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    return counts
"""


def test_large_arrays_of_a_stage_stay_in_the_heap_whatever_ran_before(tmp_path):
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another C library than glibc")
    (tmp_path / "f.py").write_text(FUNCTION, "utf-8")
    environment = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
    words = [sys.executable, "-c", PAGE_FAULTS, str(tmp_path)]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 1000  # 10,240 pages of 4 KiB where each use of the two arrays faults anew
