"""`nearpeak amp`: expectation, traces, page, and what is refused."""

import json

import pytest

pytest.importorskip("torch")
from tests.samples import SAMPLES, needs_samples
from typer.testing import CliRunner

from nearpeak.cli import application

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    def forward(self, x):
        return self.net(x)
def get_inputs():
    return [torch.rand(32, 64)]
def get_init_inputs():
    return []
"""


def amp(*words):
    return CliRunner().invoke(application(), ["amp", *map(str, words)])


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "mlp.py"
    path.write_text(PROBLEM)
    return path


def test_a_page_says_for_each_device_whether_autocast_pays(problem, tmp_path):
    page = tmp_path / "amp.html"
    done = amp(problem, "--target", "h100_sxm", "--target", "v100_sxm_32gb", "--text", "--html", page)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("<h2 ") == 2
    assert "autocast does not pay" in text
    assert "default-src 'none'" in text
    assert "http" not in text.split("</style>")[1]


def test_a_training_step_has_casts_on_its_way_back(problem):
    done = amp(problem, "--target", "h100_sxm", "--train", "--autocast", "fp16", "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.output)
    assert record["step"] == "train"
    assert any(part["operator"].startswith("aten._amp_") for part in record["parts"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--text"], "exclude each other"),
        (["--train", "--phase", "decode"], "--phase says decode"),
        (["--baseline", "x.json"], "add --trace"),
        (["--trace", "none.json"], "not found"),
    ],
)
def test_what_cannot_be_asked_together_is_refused(problem, words, said):
    done = amp(problem, "--target", "h100_sxm", *words)
    assert done.exit_code != 0
    assert said in str(done.exception)


@needs_samples
def test_a_trace_alone_says_in_which_precision_it_ran(tmp_path):
    sample = next((SAMPLES / "tracelens").glob("h100_Qwen*"))
    assert "converted as a whole, without" in amp(sample, "--text").output
    assert json.loads(amp(sample, "--json").output)["format"] == "bf16"
    refused = amp(sample, "--trace", sample, "--text")
    assert "is a trace itself" in str(refused.exception)
