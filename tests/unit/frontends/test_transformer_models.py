"""Shapes of named transformers, of configurations and of stated extents."""

import json

import pytest

from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.frontends.huggingface.transformer_config import shape_of_config
from nearpeak.frontends.huggingface.transformer_models import shape_from_extents, shape_names, shape_of

TINY = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"), ("LLAMA3_8B", "llama-3-8b"),
        ("Qwen3_235B_a22B (tokendrop)", "qwen3-235b-a22b"), ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3"),
        ("neuralmagic/Meta-Llama-3-8B-Instruct-FP8", "llama-3-8b"), ("turing-530B", "megatron-530b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"), ("Llama-4-Scout", "llama-4-scout"),
        ("llama2-70b", "llama-2-70b"), ("gpt3 175b", "gpt3-175b"), ("mosaicml/mpt-70b", "mpt-70b"),
    ],
)  # fmt: skip
def test_a_name_is_recognised_as_others_write_it(asked, name):
    assert shape_of(asked).name == name


def test_an_unknown_name_lists_near_ones():
    with pytest.raises(UnknownNameError, match=r"'lama-3-8b'.*nearest names: llama-3-8b"):
        shape_of("lama-3-8b")


def test_a_configuration_of_a_file_gives_its_shape(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False, **TINY}))
    shape = shape_of(path)
    assert (shape.hidden, shape.kv_head_count, shape.head_width, shape.has_qkv_bias, shape.window) == (
        64,
        2,
        16,
        True,
        0,
    )


def test_the_language_part_of_a_configuration_is_taken():
    assert shape_of_config("tiny", "mistral3", {"text_config": {"model_type": "mistral", **TINY}}).hidden == 64


def test_an_unknown_model_type_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"model type 'lama'.*nearest 'llama'"):
        shape_of_config("tiny", "lama", TINY)


def test_a_missing_extent_names_its_field():
    config = {key: value for key, value in TINY.items() if key != "hidden_size"}
    with pytest.raises(SpecError, match="does not state 'hidden_size'"):
        shape_of_config("tiny", "llama", config)


def test_layers_that_are_no_attention_are_refused():
    with pytest.raises(NotModelledError, match="linear_attention"):
        shape_of_config("tiny", "llama", {**TINY, "layer_types": ["linear_attention", "linear_attention"]})


def test_stated_extents_take_the_traits_of_a_model_type():
    shape = shape_from_extents(hidden=1024, layers=12, heads=16, vocabulary=50_257, like="megatron_gpt")
    assert (shape.ffn, shape.is_gated, shape.has_bias, shape.norm) == (4096, False, True, "layer_norm")
    with pytest.raises(SpecError, match="'is_gate' is no extent of a transformer; the nearest is 'is_gated'"):
        shape_from_extents(hidden=1024, layers=12, heads=16, vocabulary=50_257, is_gate=True)


@pytest.mark.parametrize(
    ("name", "windowed"), [("gemma-2-9b", 21), ("gemma-3-27b", 52), ("gpt-oss-120b", 18), ("qwen2-7b", 0),
                           ("mistral-7b-v0.1", 32), ("llama-4-scout", 36)],
)  # fmt: skip
def test_windowed_layers_are_counted(name, windowed):
    assert shape_of(name).window_layer_count == windowed


def test_every_known_name_gives_its_shape():
    assert len(shape_names()) > 100
    assert all(shape_of(name).hidden for name in shape_names())
