"""Published architectures: parameter counts, recipes, decode caches, a config.json of the user's, bad input."""

import inspect
import json

import pytest
from tests.sampling import sampled

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.frontends.huggingface.published_models import MODELS, published

pytest.importorskip("torch")
pytest.importorskip("transformers")

from nearpeak.frontends.huggingface.architecture import capture_architecture, parameters_count
from nearpeak.ops import work_of

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "torch_dtype": "bfloat16", "transformers_version": "4.40.0",
}  # fmt: skip


LLAVA = {
    "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 511,
    "text_config": {key: value for key, value in LLAMA.items() if key not in ("architectures", "torch_dtype")},
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
    },
}  # fmt: skip


def kinds(workload):
    found: dict[str, int] = {}
    for buffer in workload.buffers:
        found[buffer.kind] = found.get(buffer.kind, 0) + buffer.bytes
    return found


def test_a_model_reads_text_where_its_forward_pass_takes_tokens():
    transformers = pytest.importorskip("transformers")
    for name in MODELS:
        model = MODELS[name]
        if not model.class_names:  # of no class in transformers: a denoiser
            assert not model.reads_text
            continue
        taken = inspect.signature(getattr(transformers, model.class_names[0]).forward).parameters
        assert model.reads_text == bool({"input_ids", "decoder_input_ids"}.intersection(taken)), name


def matrix_flop(workload):
    return sum(
        count * sum(flop for unit, flop in work_of(case).flop.items() if unit.startswith("matrix"))
        for case, count in workload.case_counts().items()
        if case.op in ("gemm", "attention")
    )


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


@pytest.mark.parametrize("name", ["resnet-50", "bert-base", "gpt2", "t5-base", "llama-3-8b", "whisper-small"])
def test_parameter_counts_are_the_published_ones(name):
    assert parameters_count(name) == MODELS[name].parameters_count


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(MODELS, 16))
def test_every_model_has_its_published_parameter_count_at_full_size(name):
    assert parameters_count(name) == MODELS[name].parameters_count


def test_at_least_thirty_models_ship_and_each_names_its_source():
    assert len(MODELS.names()) >= 30
    assert all(MODELS[name].source and MODELS[name].title for name in MODELS)


def test_the_figures_that_readers_know_are_in_the_files():
    counts = {name: MODELS[name].parameters_count for name in MODELS}
    assert counts["resnet-50"] == 25_557_032
    assert counts["llama-3-8b"] == 8_030_261_248
    assert counts["bert-base"] == 109_482_240
    assert counts["gpt2"] == 124_439_808


def test_bert_base_on_128_tokens_does_the_published_work():
    workload = capture_architecture("bert-base")
    # 12 layers of 4 projections and 2 wide layers, 12 heads of 64 over 128×128 scores, and the pooler on one token
    layer = 2 * 128 * (4 * 768 * 768 + 2 * 768 * 3072) + 2 * 2 * 12 * 128 * 128 * 64
    assert matrix_flop(workload) == 12 * layer + 2 * 768 * 768
    assert workload.origin["inputs"] == "input_ids 1×128"
    assert "Devlin" in workload.origin["dimensions"]


def test_decode_reads_the_cache_once_and_adds_one_position_in_place():
    workload = capture_architecture("llama-3.2-1b", CaptureOptions(step="decode", kv=4096))
    assert kinds(workload)["kv_cache"] == 16 * 2 * 8 * 64 * 4097 * 2
    linear = 2 * (1_235_814_400 - 33 * 2048)  # every weight once (the tied table as the head); norms multiply no matrix
    assert matrix_flop(workload) == linear + 4 * 16 * 4097 * 32 * 64
    assert any("4096 positions in its cache" in sentence for sentence in workload.assumptions)


@pytest.mark.slow
def test_sliding_layers_keep_no_more_than_their_window():
    workload = capture_architecture("gpt-oss-20b", CaptureOptions(step="decode", kv=4096))
    assert kinds(workload)["kv_cache"] == 2 * 8 * 64 * 2 * (12 * 4097 + 12 * 128)


def test_encoder_decoder_decodes_from_both_caches():
    workload = capture_architecture("whisper-tiny", CaptureOptions(step="decode", kv=100, batch=2))
    assert kinds(workload)["kv_cache"] == 2 * 4 * 2 * 384 * (101 + 1500) * 4


def test_training_uses_the_head_that_the_model_was_trained_with():
    workload = capture_architecture("minilm-l6", CaptureOptions(step="train", batch=2, sequence=16))
    assert workload.origin["class"] == "BertForMaskedLM"
    assert workload.origin["inputs"] == "input_ids 2×16, labels 2×16"
    assert {call.phase for call in workload.calls} == {"forward", "backward", "optimizer"}


def test_a_config_file_or_its_folder_is_read_without_any_name(config):
    one, other = capture_architecture(config), capture_architecture(str(config.parent))
    assert one == other
    assert one.name == "my-llama"
    assert one.origin["dimensions"] == "config.json in my-llama"
    assert one.origin["inputs"] == "input_ids 1×128"
    assert one.origin["dtype"] == "bf16"


def test_an_unknown_class_falls_back_to_the_bare_architecture_and_says_so(config):
    config.write_text(json.dumps({**LLAMA, "architectures": ["MyOwnLlama"], "quantization_config": {"bits": 4}}))
    workload = capture_architecture(config)
    assert workload.origin["class"] == "LlamaModel"
    assert any("names MyOwnLlama" in sentence for sentence in workload.assumptions)
    assert any("quantisation" in sentence for sentence in workload.assumptions)


def test_a_config_file_of_a_model_that_sees_brings_images_and_their_places_in_the_prompt(config):
    config.write_text(json.dumps(LLAVA))
    workload = capture_architecture(config, CaptureOptions(batch=2, sequence=10))
    # 56 / 14 = 4 patches each way stand for one image, before 10 tokens of text.
    assert workload.origin["inputs"] == "input_ids 2×26, pixel_values 2×3×56×56"
    assert any(call.case is not None and call.case.op == "conv" for call in workload.calls)
    trained = capture_architecture(config, CaptureOptions(step="train", sequence=10))
    assert trained.origin["inputs"] == "input_ids 1×26, pixel_values 1×3×56×56, labels 1×26"


def test_unknown_names_list_near_ones_and_ask_for_the_file():
    with pytest.raises(
        UnknownNameError, match=r"did you mean .*llama-3-8b.*config.json or an ONNX file; nothing is downloaded"
    ):
        published("meta-llama/llama3-8b")
    with pytest.raises(SpecError, match="no such file"):
        published("absent/config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "has no 'model_type'"),
        ('{"model_type": "lama"}', "did you mean"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "refuses these dimensions"),
    ],
)
def test_unusable_configurations_are_refused(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(SpecError, match=message):
        capture_architecture(path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet-50", {"batch": 10**9 * 10**4}, "batch=10000000000000: must be a whole number"),
        ("llama-3-8b", {"batch": 10**9}, r"--batch 1000000000: llama-3-8b would need a tensor of over 2\^50"),
        ("llama-3-8b", {"sequence": 10**12}, r"--sequence 1000000000000: llama-3-8b would need"),
        ("llama-3-8b", {"step": "decode", "kv": 10**12}, "--kv 1000000000000"),
        ("bert-base", {"sequence": 513}, "--sequence 513: bert-base has positions for 512"),
        ("gpt2", {"step": "decode", "kv": 1024}, "--kv 1024: gpt2 has positions for 1023"),
        ("vit-base-16", {"sequence": 5}, "reads images of 224×224"),
        ("bert-base", {"step": "decode"}, "makes no tokens one by one"),
        ("llama-3-8b", {"kv": 5}, "only a decode step has a cache"),
        ("llama-3-8b", {"batch": 0}, "batch=0: must be"),
        ("llama-3-8b", {"step": "sideways"}, "step 'sideways'"),
        ("llama-3-8b", {"dtype": "bf17"}, "bf17"),
    ],
)
def test_options_that_do_not_fit_are_named(name, options, message):
    with pytest.raises((SpecError, NotModelledError), match=message):
        capture_architecture(name, CaptureOptions(**options))


def test_longer_than_published_is_noted_where_positions_are_computed(config):
    workload = capture_architecture(config, CaptureOptions(sequence=256))
    assert any("beyond the 128 positions" in sentence for sentence in workload.assumptions)
