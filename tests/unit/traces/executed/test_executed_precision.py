"""The precision in which a trace ran, told from real records of PyTorch, and its shortfall against the expectation."""

import dataclasses
import json

import pytest

torch = pytest.importorskip("torch")
from tests.samples import SAMPLES, needs_samples  # noqa: E402
from tests.unit.traces.executed import recorded  # noqa: E402
from torch import nn  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch import autocast  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.precision.actual_gain import Steps, expected_and_executed, precision_of_file  # noqa: E402
from nearpeak.precision.expected_times import mixed_precision_of  # noqa: E402
from nearpeak.precision.gap_terms import precision_gap  # noqa: E402
from nearpeak.precision.verdict import realised_of  # noqa: E402
from nearpeak.reports import precision_report as formats  # noqa: E402
from nearpeak.reports.document import Document  # noqa: E402
from nearpeak.reports.document.terminal import to_terminal  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402

H100 = target_of("h100_sxm")
TENSOR, SIMT, TF32 = "nvjet_tst_128x64_NT", "ampere_sgemm_128x64_tn", "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn"


class Mlp(nn.Module):
    """Two frozen products round a norm: under autocast seven casts."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32))
        self.requires_grad_(False)

    def forward(self, x):
        return self.net(x)


def steps():
    def take(**options):
        return capture_torch(Mlp, lambda: ((torch.rand(512, 64),), {}), CaptureOptions(**options), name="mlp")

    written, lowered = take(dtype="fp32"), take(dtype="fp32", autocast="bf16")
    return Steps(written=written, lowered=lowered, converted=take(dtype="bf16"))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """What the profiler records of the model as written, under autocast as CUDA lowers it, and converted."""
    folder, x = tmp_path_factory.mktemp("records"), torch.rand(512, 64)
    model, narrow = Mlp(), Mlp().to(torch.bfloat16)
    found = {"written": recorded.profiled(lambda: model(x), folder / "written.json")}
    short = x.bfloat16()
    found["converted"] = recorded.profiled(lambda: narrow(short), folder / "converted.json")
    with autocast.autocast_of_cuda(), torch.autocast("cuda", dtype=torch.bfloat16):
        found["autocast"] = recorded.profiled(lambda: model(x), folder / "autocast.json")
    return {name: json.dumps(whole) for name, whole in found.items()}


def traced(records, folder, which, product=TENSOR, longer=lambda _: 1.0, **top):
    """Write a trace of one of the records; products run in the kernel `product`."""

    def kernel(event):
        whole = event["name"] in recorded.WHOLE
        return (product if whole else f"vectorized_elementwise_{event['name'][6:]}"), (8.0 if whole else 4.0) * longer(
            event
        )

    return recorded.with_kernels(json.loads(records[which]) | top, folder / f"{which}.json", kernel)


@pytest.mark.parametrize(
    ("which", "product", "mode", "narrow"),
    [
        ("autocast", TENSOR, "autocast", 1.0), ("converted", TENSOR, "converted", 1.0), ("written", SIMT, "fp32", 0.0),
        ("written", TF32, "tf32", 0.0), ("written", "gemm_of_mine", "unknown", 0.0),
    ],
)  # fmt: skip
def test_the_mode_is_told_from_formats_of_calls_and_names_of_kernels(records, tmp_path, which, product, mode, narrow):
    _, found = precision_of_file(traced(records, tmp_path, which, product))
    assert found.mode == mode
    assert found.format == ("bf16" if narrow else "")
    assert found.lowered_flop_ratio == narrow
    assert found.cast_count == (7 if which == "autocast" else 0)


def test_products_of_16_bits_on_vector_units_are_named(records, tmp_path):
    _, found = precision_of_file(traced(records, tmp_path, "autocast", SIMT))
    assert found.matrix_unit_ratio == 0.0
    assert [name.split()[0] for name, _ in found.unused] == ["gemm", "gemm"]
    assert sum(time for _, time in found.unused) == pytest.approx(16_000)


def test_settings_that_contradict_the_kernels_are_a_conflict(records, tmp_path):
    path = traced(records, tmp_path, "written", TF32, allow_tf32="False")
    assert "forbid TF32" in precision_of_file(path)[1].conflict


def test_every_expected_cast_ran_and_the_terms_add_up_to_the_nanosecond(records, tmp_path):
    gap = expected_and_executed(steps(), H100, traced(records, tmp_path, "autocast")).gap
    assert gap.against == "lowered"
    assert (gap.expected_cast_count, gap.executed.cast_count, gap.matched_ratio) == (7, 7, 1.0)
    assert gap.shortfall.residual_ns == 0
    assert gap.reason == ""


PLANTED = {
    "casts": (TENSOR, lambda event: 400 if event["name"] == "aten::copy_" else 1),
    "units": (SIMT, lambda event: 400 if event["name"] == "aten::addmm" else 1),
    "kernels": (TENSOR, lambda event: 400 if event["name"] == "aten::addmm" else 1),
}


@pytest.mark.parametrize("term", PLANTED)
def test_a_planted_cause_is_put_down_to_its_term(records, tmp_path, term):
    before = traced(records, tmp_path, "autocast", PLANTED[term][0])
    known = expected_and_executed(steps(), H100, before).gap.shortfall
    after = traced(records, tmp_path, "autocast", *PLANTED[term])
    found = expected_and_executed(steps(), H100, after).gap.shortfall
    moved = {
        name: sum(part.time_ns for part in found.parts if part.term == name)
        - sum(part.time_ns for part in known.parts if part.term == name)
        for name in {part.term for part in (*found.parts, *known.parts)} - {"idle"}
    }
    assert found.residual_ns == 0
    assert moved[term] >= 0.9 * sum(moved.values()) > 0


def test_a_step_that_never_ran_is_missing_work_and_doubted(records, tmp_path):
    path = traced(records, tmp_path, "autocast")
    executed, precision = precision_of_file(path, H100)
    other = capture_torch(
        lambda: nn.Linear(9, 9), lambda: ((torch.rand(5, 9),), {}), CaptureOptions(autocast="bf16"), name="other"
    )
    gap = precision_gap(executed, precision, "lowered", other, H100)
    assert gap.matched_ratio == 0
    assert "another batch" in gap.reason
    assert gap.shortfall.residual_ns == 0


def test_a_baseline_calibrates_tells_what_was_realised_and_has_its_own_terms(records, tmp_path):
    run = traced(records, tmp_path, "autocast")
    base = traced(records, tmp_path, "written", SIMT, longer=lambda _: 30)
    found = expected_and_executed(steps(), H100, run, base)
    assert 0 < found.efficiency.bandwidth_ratio <= 1
    assert found.gap.base is not None
    assert found.gap.base.residual_ns == found.gap.shortfall.residual_ns == 0
    told = found.gap.realised
    assert told is not None
    assert told.baseline == "fp32"
    assert told.expected_ratio == pytest.approx(found.expected.speed_up_ratio("fp32"))
    assert told.realised_ratio is None
    assert "too small" in told.reason  # memory limits this step


def test_compiled_code_hides_the_mode_and_nothing_is_concluded_from_it(records, tmp_path):
    fused = "triton_poi_fused__to_copy_0"
    run = json.loads(traced(records, tmp_path, "converted").read_text())
    for event in run["traceEvents"]:
        if event.get("cat") == "kernel" and event["name"] != TENSOR:
            event["name"] = fused
    path = tmp_path / "compiled.json"
    path.write_text(json.dumps(run))
    found = expected_and_executed(steps(), H100, path, traced(records, tmp_path, "written", SIMT))
    assert found.gap.executed.compiled_ratio > 0.2
    assert (found.gap.executed.mode, found.gap.executed.format) == ("unknown", "bf16")
    assert "compiled code" in found.gap.reason
    assert found.gap.realised is not None
    assert found.gap.realised.realised_ratio is None
    assert "eager operators" in found.gap.realised.reason
    assert precision_of_file(traced(records, tmp_path, "converted"))[1].compiled_ratio == 0


def test_the_realised_part_is_that_of_the_gain_and_of_its_logarithm(records, tmp_path):
    run = precision_of_file(traced(records, tmp_path, "autocast"))[0]
    expected = mixed_precision_of(steps().written, steps().lowered, H100)
    expected = dataclasses.replace(expected, baseline_s={"tf32": 4 * expected.lowered_s})
    slower = dataclasses.replace(run.timeline, end_ns=run.timeline.start_ns + 2 * run.window_ns)
    base = dataclasses.replace(run, timeline=slower, step_ns=tuple(2 * one for one in run.step_ns))
    told = realised_of(expected, base, run, ("tf32", "autocast"))
    assert told.speed_up_ratio == pytest.approx(2)
    assert told.realised_ratio == pytest.approx(1 / 3)
    assert told.log_ratio == pytest.approx(0.5)
    assert realised_of(expected, base, run, ("tf32", "fp32")).realised_ratio is None


def test_a_baseline_whose_fp32_is_not_known_withholds_the_realised_part(records, tmp_path):
    run, base = traced(records, tmp_path, "autocast"), traced(records, tmp_path, "written", "gemm_of_mine")
    told = expected_and_executed(steps(), H100, run, base).gap.realised
    assert told is not None
    assert told.realised_ratio is None
    assert "unknown" in told.reason


def test_every_format_shows_what_ran(records, tmp_path):
    found = expected_and_executed(steps(), H100, traced(records, tmp_path, "autocast"))
    text = to_terminal(Document(blocks=tuple(formats.gap_blocks(found.gap, found.step_counts))))
    assert max(map(len, text.splitlines())) <= 80
    assert "7, 7 expected" in text
    record = json.loads(formats.executed_to_json(found.gap.executed))
    assert record["mode"] == "autocast"
    assert record["products"][0]["unit"] == "tensor"


@needs_samples
@pytest.mark.parametrize("name", ["h100_Qwen", "mi300_Qwen"])
def test_a_model_in_bf16_with_norms_in_fp32_is_not_taken_for_autocast(name):
    _, found = precision_of_file(next((SAMPLES / "tracelens").glob(f"{name}*")))
    assert (found.mode, found.format) == ("converted", "bf16")
    assert {(one.before, one.after) for one in found.casts} >= {("bf16", "fp32"), ("fp32", "bf16")}


@needs_samples
def test_without_shapes_no_mode_is_told_but_units_are():
    _, found = precision_of_file(next((SAMPLES / "kineto").glob("critical_path_alexnet*")))
    assert found.mode == "unknown"
    assert {one.unit for one in found.products} >= {"vector", "tf32"}
