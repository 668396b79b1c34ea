"""`analyze TRACE --model`: the captured calls of a model beside what its real record shows, on every medium."""

import json

import pytest

torch = pytest.importorskip("torch")
from tests.samples import SAMPLES, needs_samples  # noqa: E402
from tests.unit.traces.executed import recorded  # noqa: E402
from torch import nn  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from nearpeak.api import questions  # noqa: E402
from nearpeak.api.trace_analysis import analyze_trace  # noqa: E402
from nearpeak.cli import application  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.reports.document.html import to_html  # noqa: E402
from nearpeak.reports.document.markdown import to_markdown  # noqa: E402
from nearpeak.reports.document.terminal import to_terminal  # noqa: E402
from nearpeak.reports.trace.steps_report import document_of, to_json  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402


class Mlp(nn.Module):
    """Two products round a norm."""

    def __init__(self, layers=2):
        super().__init__()
        more = [nn.Linear(48, 48) for _ in range(layers - 2)]
        self.net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 48), *more)

    def forward(self, x):
        return self.net(x)


def texts_of(report, width=80):
    """A report on every medium."""
    document = document_of(report)
    return [to_terminal(document, width=width), to_markdown(document), to_html(document)]


def captured(layers=2, step="forward"):
    return capture_torch(
        lambda: Mlp(layers), lambda: ((torch.rand(96, 64),), {}), CaptureOptions(step=step), name="mlp"
    )


def kernel(event):
    return f"my_{event['name'][6:]}_kernel", 8.0


def traced(folder, step="forward"):
    model, x = Mlp(), torch.rand(96, 64)

    def forward():
        with torch.no_grad():
            model(x)

    def train():
        model(x).mean().backward()
        model.zero_grad()

    whole = recorded.profiled(train if step == "train" else forward, folder / "record.json")
    return recorded.with_kernels(whole, folder / "trace.json", kernel)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return traced(tmp_path_factory.mktemp("trace"))


def test_every_call_of_the_model_that_ran_is_found_with_its_bound_and_expected_time(trace):
    report = analyze_trace(trace, model=captured())
    join = report.join
    assert join is not None
    assert (join.call_count, join.seen_count, join.unseen) == (4, 4, ())
    assert join.step_bound_s == pytest.approx(questions.bound(captured(), "h100_sxm").time_s)
    known = {one.name: one for one in report.executed.operators}
    assert set(known) == {"aten::addmm", "aten::gelu", "aten::native_layer_norm"}
    assert all(0 < one.bound_s <= one.predicted_s for one in known.values())
    assert report.executed.unmatched_ns == 0
    assert report.shortfall is not None
    assert report.shortfall.residual_ns == 0


def test_calls_that_never_ran_are_named_with_their_expected_time_and_the_terms_still_add_up(trace):
    model = captured(layers=5)
    report = analyze_trace(trace, model=model)
    assert report.join is not None
    assert [(one.call_count, one.label.split()[0]) for one in report.join.unseen] == [(3, "gemm")]
    without = analyze_trace(trace)
    assert report.shortfall.expected_ns - without.shortfall.expected_ns == pytest.approx(
        report.join.unseen[0].expected_s * report.executed.step_count * 1e9, abs=1
    )
    assert report.shortfall.residual_ns == 0
    for text in texts_of(report):
        assert "4 of 7 calls ran as captured (57%)" in " ".join(text.split())
        assert "never seen" in text
    assert max(map(len, to_terminal(document_of(report)).splitlines())) <= 80
    assert json.loads(to_json(report))["join"]["unseen"][0]["call_count"] == 3


def test_another_batch_is_said_to_be_another(trace):
    other = capture_torch(Mlp, lambda: ((torch.rand(7, 64),), {}), name="mlp")
    notes = analyze_trace(trace, model=other).executed.notes
    assert any("0 of 4 calls" in note for note in notes)
    assert any("another batch" in note for note in notes)


def test_a_training_step_joins_backwards_too(tmp_path):
    report = analyze_trace(traced(tmp_path, "train"), model=captured(step="train"))
    assert report.join is not None
    assert report.join.seen_count >= 12
    assert not any(one.label.startswith("gemm") for one in report.join.unseen)


def test_a_trace_without_a_known_device_asks_for_it(trace, tmp_path):
    whole = json.loads(trace.read_text()) | {"deviceProperties": []}
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(SpecError, match="name it with --target"):
        analyze_trace(path, model=captured())
    assert analyze_trace(path, target_of("a100_sxm_80gb"), captured()).join.seen_count == 4


@needs_samples
def test_a_sample_joins_its_model_by_the_config_of_that_model(tmp_path):
    pytest.importorskip("transformers")
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 24, "vocab_size": 151936,
        "tie_word_embeddings": True, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    sample = next((SAMPLES / "tracelens").glob("h100_Qwen*"))
    words = ["analyze", sample, "--model", file, "--batch", 16, "--sequence", 559, "--dtype", "bf16", "--json"]
    done = CliRunner().invoke(application(), [str(word) for word in words])
    join = json.loads(done.output[done.output.index("{") :])["join"]
    assert join["seen_count"] > 0.5 * join["call_count"]
    assert join["step_bound_s"] < 47.2e-3
