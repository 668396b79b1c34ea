"""Sizes and formats of a shipped step: the report's own answer is among them, what is not shipped has none."""

import pytest

from nearpeak.api.questions import analyze, capture_with
from nearpeak.api.step_sizes import step_grid
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.judgement.step_answer import expected_of
from nearpeak.targets import target_of

DECODE = CaptureOptions(step="decode", batch=8, kv=4096)


@pytest.fixture(scope="module")
def grid(monkeypatch_module):
    monkeypatch_module.setattr("nearpeak.api.step_sizes.BATCHES", (4096,))
    monkeypatch_module.setattr("nearpeak.api.step_sizes.LENGTHS", {"decode": ()})
    monkeypatch_module.setattr("nearpeak.api.step_sizes.FORMATS", {"decode": ((None, None), ("fp8", "fp8"))})
    return step_grid("llama-3-8b", DECODE, [target_of("h100_sxm")])


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def answer_at(grid, batch, length, form):
    place = (grid.formats.index(form) * len(grid.lengths) + grid.lengths.index(length)) * len(grid.batches)
    return grid.answers[0][place + grid.batches.index(batch)]


def test_the_own_size_has_the_answer_of_the_report(grid):
    analysis = analyze(capture_with("llama-3-8b", DECODE), ["h100_sxm"])
    answer = answer_at(grid, 8, 4096, "bf16")
    assert (grid.batches[grid.own[0]], grid.lengths[grid.own[1]], grid.own[2]) == (8, 4096, 0)
    assert answer.limit_s == analysis.targets[0].bound_s
    assert answer.expected_s == expected_of(analysis, analysis.targets[0]).time_s
    assert answer.items_per_s == pytest.approx(8 / answer.expected_s)


def test_narrow_formats_are_faster_and_a_size_beyond_the_library_has_no_answer(grid):
    assert answer_at(grid, 8, 4096, "fp8 weights, fp8 KV cache").limit_s < answer_at(grid, 8, 4096, "bf16").limit_s
    assert answer_at(grid, 4096, 4096, "bf16") is None


@pytest.mark.parametrize(
    "options", [CaptureOptions(autocast="bf16"), CaptureOptions(engine="tensorrt")], ids=["autocast", "engine"]
)
def test_a_step_that_is_not_shipped_has_no_grid(options):
    assert step_grid("resnet-50", options, [target_of("l4")]) is None


def test_a_file_has_no_grid(tmp_path):
    assert step_grid(str(tmp_path / "net.onnx"), CaptureOptions(), [target_of("l4")]) is None
