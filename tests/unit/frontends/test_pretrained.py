"""Pretrained models in problem files: published dimensions instead of a download."""

import json

import pytest

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError
from nearpeak.frontends.huggingface.pretrained_stub import published_as
from nearpeak.frontends.torch.problem_file import capture_problem

pytest.importorskip("transformers")

FILE = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained({name!r}, n_layer=1)

class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        return self.model(x).logits

def get_inputs():
    return [torch.randint(0, config.vocab_size, (2, 16))]

def get_init_inputs():
    return [{name!r}, config]
"""


def problem(tmp_path, name, text=FILE):
    path = tmp_path / "problem.py"
    path.write_text(text.format(name=name))
    return path


def counts(workload):
    found = {}
    for case, count in workload.case_counts().items():
        found[case.op] = found.get(case.op, 0) + count
    return found


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_pretrained_model_is_built_of_its_published_dimensions(tmp_path, name):
    workload = capture_problem(problem(tmp_path, name))
    assert workload.uncovered_counts() == {}
    assert counts(workload)["attention"] == 1
    assert int(workload.origin["parameters"]) > 50_257 * 768


def test_pretrained_model_stays_in_evaluation_mode_unless_training_is_asked_for(tmp_path):
    path = problem(tmp_path, "gpt2")
    assert "dropout" not in counts(capture_problem(path))
    assert "dropout" in counts(capture_problem(path, CaptureOptions(training=True)))
    assert "dropout" in counts(capture_problem(path, CaptureOptions(step="train")))


def test_local_folder_is_read_and_its_weights_are_not(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 3, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config))
    workload = capture_problem(problem(tmp_path, str(folder)))
    assert 0 < int(workload.origin["parameters"]) < 100_000


def test_class_of_a_model_takes_its_own_configuration(tmp_path):
    text = FILE.replace("AutoConfig", "GPT2Config").replace("AutoModelForCausalLM", "GPT2LMHeadModel")
    assert counts(capture_problem(problem(tmp_path, "gpt2", text)))["attention"] == 1


def test_unknown_name_is_refused_with_what_would_be_right(tmp_path):
    with pytest.raises(CaptureError, match=r"from_pretrained\('gpt-3'\).*config\.json; near it are gpt2"):
        capture_problem(problem(tmp_path, "gpt-3"))


def test_vocabulary_is_refused(tmp_path):
    text = FILE.replace(
        "config = ", "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('gpt2')\nconfig = "
    )
    with pytest.raises(CaptureError, match="vocabularies are not downloaded"):
        capture_problem(problem(tmp_path, "gpt2", text))


def test_from_pretrained_is_put_back_after_the_capture(tmp_path):
    import transformers

    before = transformers.AutoConfig.from_pretrained.__func__
    capture_problem(problem(tmp_path, "gpt2"))
    assert transformers.AutoConfig.from_pretrained.__func__ is before


def test_hub_names_are_found_without_their_owner():
    assert published_as("EleutherAI/gpt-neo-2.7B") is published_as("gpt-neo-2.7b")
