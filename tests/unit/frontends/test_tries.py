"""Captures that failed, tried again with what their errors say: the search, its changes, types without settings."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError
from nearpeak.frontends.huggingface import capture_retry, model_type
from nearpeak.frontends.huggingface.capture_retry import first_that_runs
from nearpeak.frontends.huggingface.input_request import Ask
from nearpeak.frontends.huggingface.inputs_by_name import by_name
from nearpeak.frontends.huggingface.model_type import capture_model_type, class_and_config
from nearpeak.frontends.huggingface.repairs import UNCHANGED, Trial, repairs


def failing_until(wanted):
    """Return a run that needs all settings of `wanted` and complains of the first one that is absent."""

    def run(trial):
        for name in wanted:
            if name not in {setting[1] for setting in trial.settings}:
                raise CaptureError(f"m: forward raised {name}")
        return trial

    return run


def one_by_one(error, trial):
    yield trial.with_settings(("", "useless", 1))
    yield trial.with_settings(("", error.split()[-1], 2))


def test_changes_that_lead_to_another_error_are_kept_and_mended_further():
    found = first_that_runs(failing_until(["a", "b", "c"]), one_by_one)
    assert [setting[1] for setting in found.settings] == ["a", "b", "c"]


def test_when_nothing_helps_the_error_of_the_model_as_it_is_is_raised():
    with pytest.raises(CaptureError, match=r"raised a$"):
        first_that_runs(
            failing_until(["a", "b"]),
            lambda error, trial: one_by_one(error, trial) if error.endswith("a") else iter(()),
        )


def test_no_change_is_tried_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr(capture_retry, "BUDGET_S", -1.0)
    with pytest.raises(CaptureError, match=r"raised a$"):
        first_that_runs(failing_until(["a"]), one_by_one)


def test_a_layout_that_fails_otherwise_is_not_built_upon():
    tried = []

    def run(trial):
        tried.append(dict(trial.hints))
        raise CaptureError(f"m: forward raised {sorted(trial.hints)}")

    with pytest.raises(CaptureError):
        first_that_runs(run, lambda _error, trial: iter([trial.with_hints(a=1), trial.with_hints(b=2)]))
    assert tried == [{}, {"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("name", "error", "wanted"),
    [
        ("detr", "DetrModel requires the timm library", ("", "backbone_config", "ResNetConfig")),
        ("llama", "'LlamaConfig' object has no attribute 'rope_theta'", ("", "rope_theta", 10000.0)),
        ("autoformer", "The `prediction_length` config needs to be specified", ("", "prediction_length", 24)),
        ("llava", "to divide (got `embed_dim`: 1024 and `num_heads`: 15)", None),
        ("aya_vision", "(got `embed_dim`: 1152 and `num_heads`: 14)", ("vision_config", "num_attention_heads", 16)),
    ],
)
def test_an_error_names_the_setting_to_change(name, error, wanted, monkeypatch):
    monkeypatch.setattr(model_type, "settings_of", lambda _name: {})
    _, config, _ = class_and_config(name)
    if name == "aya_vision":
        config.vision_config.num_attention_heads = 14
    changes = [
        (path, key, type(value).__name__ if hasattr(value, "model_type") else value)
        for trial in repairs(f"building the model raised {error}", UNCHANGED, config, ())
        for path, key, value in trial.settings
    ]
    assert changes == [] if wanted is None else wanted in changes


def test_what_was_changed_is_said():
    trial = Trial(settings=(("text_config", "sliding_window", 512),), hints={"bins_first": True})
    said = " ".join(trial.notes())
    assert "text_config.sliding_window is taken to be 512" in said
    assert "bins_first of the inputs is taken to be True" in said


@pytest.mark.parametrize("name", ["hunyuan_v1_moe", "autoformer", "cohere_compass_text", "glm_image_text"])
def test_a_type_is_captured_without_the_file_of_its_settings(name, monkeypatch):
    monkeypatch.setattr(model_type, "settings_of", lambda _name: {})
    workload = capture_model_type(name, CaptureOptions(layers=2, batch=2))
    assert not workload.uncovered_counts()


def asking(forward, **settings):
    import torch
    from transformers import PretrainedConfig

    class Model(torch.nn.Module):
        dtype = torch.float32

    Model.forward = forward
    model = Model()
    model.config = PretrainedConfig(**settings)
    model.first = torch.nn.Conv1d(12, 8, 3)
    options = CaptureOptions(batch=2)
    return Ask(model=model, model_type="new", recipes=(), options=options, hints={}, unknown=by_name)


def test_what_must_be_given_and_no_recipe_knows_is_made_by_its_name():
    def forward(self, codes, step: int, input_lengths, latents, whatever, optional_codes=None):
        raise NotImplementedError

    found = asking(forward, num_quantizers=4).inputs()
    shapes = {name: tuple(value.shape) for name, value in found.items() if hasattr(value, "shape")}
    assert shapes == {"codes": (2, 4, 32), "input_lengths": (2,), "latents": (2, 12, 32)}
    assert found["step"] == 1
    assert not {"whatever", "optional_codes"} & set(found)
