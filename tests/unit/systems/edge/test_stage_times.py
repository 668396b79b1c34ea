"""Times of stages from spans made by hand, and times of another page by a calibration page."""

from dataclasses import replace

import pytest

from nearpeak.core.edge.stage_pipeline import StagePipeline, StageRecording, StageSpan
from nearpeak.errors import SpecError
from nearpeak.systems.edge.pipeline_file import pipeline_of
from nearpeak.systems.edge.stage_times import calibrated, stage_times


def span(name, start, stop, **options):
    return StageSpan(name=name, start_ns=start, stop_ns=stop, **options)


RECORDING = StageRecording(
    walls_ns=((0, 100), (200, 310)),
    spans=(
        span("load", 0, 10, out_bytes=50), span("model", 10, 60, in_bytes=400, cpu_ns=40), span("post", 60, 95),
        span("part", 70, 80, outer_count=1), span("part", 80, 90, outer_count=1),
        span("load", 200, 214, round=1, out_bytes=50), span("model", 214, 270, round=1, in_bytes=400, cpu_ns=44),
        span("post", 270, 305, round=1), span("part", 280, 290, round=1, outer_count=1),
        span("part", 290, 300, round=1, outer_count=1),
    ),
)  # fmt: skip


def test_times_add_up_to_what_was_recorded():
    load, model, post, part = stage_times(RECORDING, frozenset({"model"}))
    assert [row.name for row in (load, model, post, part)] == ["load", "model", "post", "post/part"]
    assert [round(row.time_s * 1e9) for row in (load, model, post, part)] == [12, 53, 35, 20]
    assert round(post.own_s * 1e9) == 15
    assert round(model.cpu_s * 1e9) == 42
    assert (part.call_count, part.outer_count, part.p95_s) == (2, 1, 1e-8)
    assert (model.is_model, model.driver_bytes, load.driver_bytes) == (True, 400, 50)
    assert RECORDING.coverage() == pytest.approx(200 / 210)


def test_a_calibration_page_scales_each_stage_by_what_drives_it():
    page = stage_times(RECORDING, frozenset({"model"}))
    other = [replace(row, driver_bytes=3 * row.driver_bytes, call_count=2 * row.call_count) for row in page]
    expected = {row.name: row.expected_s for row in calibrated(other, page[:-1])}
    assert expected["model"] == pytest.approx(3 * page[1].time_s)
    assert expected["post"] == pytest.approx(2 * page[2].time_s)  # moves no arrays: by its calls
    assert expected["post/part"] is None


@pytest.mark.parametrize(("text", "message"), [
    ("x = 1", "no key x"),
    ('[[stage]]\nname = "a"', "either call"),
    ('[[stage]]\ncall = "m:f"', "name is None"),
    ('[[stage]]\nname = "a"\ncall = "m:f"\nspeed = 1', "no key speed"),
    ('[[stage]]\nname = "a"\ncall = "m:f"\nbatch = 2', "batch is for a model"),
    ('[[stage]]\nname = "a"\ncall = "m:f"\ninputs = ["b"]', "takes 'b'"),
    ('[[stage]]\nname = "a"\nmodel = "no_such_package_at_all:a.onnx"', "is installed"),
    ("stage = [1]", "stage 1: is 1; a table"),
    ('input = 5\n[[stage]]\nname = "a"\ncall = "m:f"', "input is 5; a text is right"),
    ('[[stage]]\nname = "a\\nb"\ncall = "m:f"', r"stage 1: name is 'a\\nb'; text of one line"),
    ('[[stage]]\nname = "a"\ncall = "m:f"\neach = "no"', "each is 'no'; true or false is right"),
    (f'[[stage]]\nname = "a"\nmodel = "m.onnx"\nbatch = {"9" * 400}', r"batch is 9{40}… \(400 characters\); a whole"),
    ('[[stage]]\nname = "a"\ncall = "m:f"\n' * 101, "has 101 stages; at most 100 are right"),
])  # fmt: skip
def test_a_malformed_pipeline_is_one_line(tmp_path, text, message):
    path = tmp_path / "p.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SpecError, match=message) as caught:
        pipeline_of(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_models_are_beside_the_file_or_in_a_package(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text('[[stage]]\nname = "a"\nmodel = "net.onnx"\n[[stage]]\nname = "b"\nmodel = "json:x.onnx"', "utf-8")
    pipeline = pipeline_of(path)
    assert isinstance(pipeline, StagePipeline)
    assert pipeline.stages[0].model == str(tmp_path / "net.onnx")
    assert pipeline.stages[1].model.endswith("json/x.onnx")
