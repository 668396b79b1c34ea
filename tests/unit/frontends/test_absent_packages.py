"""Named models where PyTorch or transformers is absent: one line before any process starts, with what answers."""

from pathlib import Path

import pytest

from nearpeak.errors import MissingExtraError
from nearpeak.frontends import source_types
from nearpeak.frontends.huggingface import step_library
from nearpeak.frontends.source_types import captured


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(source_types, "find_spec", lambda name: None)
    monkeypatch.setattr(source_types, "capture_isolated", lambda *_, **__: pytest.fail("a process was started"))


def test_a_language_model_names_the_extra_and_the_command_that_needs_none(absent, monkeypatch):
    monkeypatch.setattr(step_library, "FOLDER", Path("nowhere"))
    with pytest.raises(
        MissingExtraError, match=r"torch and transformers; .*nearpeak\[hf\].*plan serve llama-3-8b --on"
    ):
        captured("llama-3-8b", source_types.CaptureOptions(step="decode"))


@pytest.mark.parametrize("source", ["resnet-50", "hf:sam"])
def test_other_models_name_the_extra_alone(absent, monkeypatch, source):
    monkeypatch.setattr(step_library, "FOLDER", Path("nowhere"))
    with pytest.raises(MissingExtraError) as error:
        captured(source, source_types.CaptureOptions())
    assert "nearpeak[hf]" in str(error.value)
    assert "plan serve" not in str(error.value)


def test_formats_and_names_of_models_are_read_without_either():
    assert source_types.refuse_early("llama-3-8b", source_types.CaptureOptions(weights="fp8")) is None
