"""Model types: small configurations, inputs of every kind, values that decide sizes, errors by cause."""

import random
import tomllib
from pathlib import Path

import pytest
from tests.sampling import sampled

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks._architecture_record import architecture_record

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError, NotModelledError, SpecError, UnknownNameError
from nearpeak.frontends.huggingface import settings
from nearpeak.frontends.huggingface.config_parts import fitted, parts, with_layers
from nearpeak.frontends.huggingface.input_kinds import kinds_of
from nearpeak.frontends.huggingface.model_type import capture_model_type, class_and_config, model_types
from nearpeak.frontends.huggingface.partial_models import runnable_parts
from nearpeak.frontends.huggingface.recipes import RECIPES
from nearpeak.frontends.torch.module_capture import capture_torch

DIVERSE = (
    "bert", "mixtral", "whisper", "wav2vec2", "clip", "llava", "qwen2_vl", "qwen2_5_omni_thinker", "layoutlm",
    "patchtst", "videomae", "detr", "sam", "mamba2", "t5", "lxmert", "audioflamingo3", "mllama", "idefics2",
    "decision_transformer", "encodec", "time_series_transformer", "siglip2", "deepseek_v3",
)  # fmt: skip


def read_inputs(workload):
    used = {use.buffer for call in workload.calls for use in call.reads}
    return {buffer.name for number, buffer in enumerate(workload.buffers) if buffer.kind == "input" and number in used}


def axes_of(workload, op):
    return [dict(call.case.axes) for call in workload.calls if call.case is not None and call.case.op == op]


def test_a_stack_keeps_a_layer_of_every_kind():
    _, config, _ = class_and_config("gemma3_text")
    assert len(config.layer_types) == config.num_hidden_layers == 26
    smaller = with_layers(config, 2)
    assert smaller.num_hidden_layers == 6  # the sixth layer is the first with full attention
    assert smaller.layer_types == config.layer_types[:6]
    assert config.num_hidden_layers == 26


def test_stacks_of_nested_parts_are_cut_together():
    _, config, _ = class_and_config("llava")
    smaller = with_layers(config, 2)
    assert {path: part.num_hidden_layers for path, part in parts(smaller) if path} == {
        "text_config": 2, "vision_config": 2,
    }  # fmt: skip


def test_what_defaults_leave_open_is_filled_in_and_said():
    _, config, _ = class_and_config("ministral")
    config.head_dim = None
    (sentence,) = [one for one in fitted(config) if "head_dim" in one]
    assert config.head_dim == config.hidden_size // config.num_attention_heads
    assert str(config.head_dim) in sentence


def test_a_prompt_has_a_placeholder_for_every_embedding_of_an_image():
    workload = capture_model_type("llava", CaptureOptions(layers=1, sequence=10))
    # CLIP at 336 pixels with patches of 14 makes 24×24 embeddings; ten text tokens follow
    assert workload.origin["inputs"] == "input_ids 1×586, pixel_values 1×3×336×336"
    assert read_inputs(workload) == {"input_ids", "pixel_values"}


def test_a_model_of_many_kinds_gets_them_all():
    workload = capture_model_type("qwen2_5_omni_thinker", CaptureOptions(layers=1))
    assert set(workload.origin["kinds"].split(", ")) == {"text", "image", "video", "audio"}
    assert {"input_ids", "input_features", "pixel_values", "pixel_values_videos"} <= read_inputs(workload)


def test_experts_are_captured_in_bf16_and_other_models_in_fp32():
    for name, wanted in (("mixtral", "bf16"), ("llama", "fp32")):
        cases = capture_model_type(name, CaptureOptions(layers=1)).case_counts()
        assert {dict(case.dtypes)["dtype"] for case in cases if case.op == "gemm"} == {wanted}


def test_kinds_follow_from_the_names_of_parameters():
    assert kinds_of(["input_ids", "pixel_values_videos", "use_cache"]) == {"text", "video"}


def test_a_known_mask_decides_how_much_it_picks():
    import torch

    def picks(x):
        return x[torch.arange(10) < 4] * 2

    workload = capture_torch(lambda: picks, lambda: ((torch.empty(10, 3),), {}), name="picks")
    assert any(dict(case.axes).get("elements") == 12 for case in workload.case_counts() if case.op == "elementwise")
    assert not any("assumed" in sentence for sentence in workload.assumptions)


def test_an_unknown_mask_is_refused_unless_sizes_may_be_guessed_and_then_counted():
    import torch

    def picks(x):
        return x[x > 0] * 2

    def capture(**options):
        return capture_torch(
            lambda: picks, lambda: ((torch.empty(10, 3),), {}), CaptureOptions(**options), name="picks"
        )

    with pytest.raises(CaptureError, match="decides something from the values"):
        capture()
    assert any("index = everything" in sentence for sentence in capture(guess_sizes=True).assumptions)


def test_a_type_that_is_not_known_is_refused_with_the_closest_name():
    with pytest.raises(UnknownNameError, match="did you mean bert"):
        capture_model_type("berd")


def test_a_model_without_a_forward_pass_is_captured_part_by_part():
    workload = capture_model_type("bark", CaptureOptions(layers=1))
    parts_read = {name.partition(":")[0] for name in read_inputs(workload)}
    assert parts_read == {"semantic", "coarse_acoustics", "fine_acoustics", "codec_model"}
    assert set(workload.origin["kinds"].split(", ")) == {"text", "audio"}
    assert {call.module.split(".")[1] for call in workload.calls if call.module.startswith("whole.")} >= parts_read


def test_a_model_that_thinks_and_speaks_is_captured_at_its_published_widths():
    workload = capture_model_type("qwen3_omni_moe", CaptureOptions(layers=1))
    assert {name.partition(":")[0] for name in read_inputs(workload)} == {"thinker", "talker", "code2wav"}
    assert set(workload.origin["kinds"].split(", ")) == {"text", "image", "video", "audio"}
    assert workload.uncovered_counts() == {}
    products = {(axes["k"], axes["n"]) for axes in axes_of(workload, "gemm")}
    # queries of 32 heads of 128 in the thinker, of 16 in the talker, and the talker's shared expert of 768
    assert {(2048, 32 * 128), (1024, 16 * 128), (1024, 768)} <= products


def test_a_time_series_has_the_published_context():
    workload = capture_model_type("timesfm2_5", CaptureOptions(layers=1))
    assert workload.origin["inputs"] == "past_values 1×1024, past_values_padding 1×1024"
    assert len(workload.calls) < 2000  # its loop over patches of 32 values is unrolled


def test_a_part_without_parts_is_run_by_its_encoding_half():
    workload = capture_model_type("glm_image_vqmodel")
    assert workload.origin["inputs"] == "encode:hidden_states 1×1536×16×16"
    assert any(call.case.op == "gemm" for call in workload.calls if call.case is not None)


def test_a_model_of_which_nothing_runs_is_refused():
    import torch

    with pytest.raises(NotModelledError, match="no part has one"):
        runnable_parts("empty", torch.nn.Module())


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("gpt2", 2 * 2 * 65 * 768 * 4),  # keys and values of two layers, 64 positions and the new one, fp32
        ("bert", 2 * 2 * 65 * 768 * 4),  # an encoder by default, told to decode
        ("whisper", 2 * 2 * (65 + 1500) * 384 * 4),  # the decoder's own cache and the encoder's 1,500 positions
    ],
)
def test_a_type_that_makes_tokens_has_a_decode_step(name, kept):
    workload = capture_model_type(name, CaptureOptions(step="decode", kv=64, layers=2))
    found = sum(buffer.bytes for buffer in workload.buffers if buffer.kind == "kv_cache")
    assert (workload.step, found, workload.uncovered_counts()) == ("decode", kept, {})


def test_a_type_without_a_cache_says_so():
    with pytest.raises(SpecError, match="hf:vit: transformers names no class of it that makes tokens one by one"):
        capture_model_type("vit", CaptureOptions(step="decode"))
    with pytest.raises(SpecError, match="only a decode step has a cache"):
        capture_model_type("gpt2", CaptureOptions(kv=64))


def types_of_parts():
    """Return the types of the parts of models without a forward pass of their own."""
    whole = ("bark", "qwen2_5_omni", "qwen3_omni_moe")
    configs = [(name, path, part) for name in whole for path, part in parts(class_and_config(name)[1])]
    return {part.model_type or f"{name}_{path.removesuffix('_config')}" for name, path, part in configs}


def test_every_recipe_is_for_types_and_parameters_that_exist():
    for name in RECIPES:
        unknown = RECIPES[name].model_types - set(model_types()) - types_of_parts()
        assert RECIPES[name].gives, name
        assert not unknown, f"{name}: {unknown}"


def test_every_file_of_settings_names_a_type_and_its_source():
    for path in sorted(Path(settings.__file__).parent.glob("*.toml")):
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
        assert path.stem in model_types(), path.name
        assert stated["source"], path.name
        assert set(stated) <= {"source", "config", "inputs", "layers", "dtype", "class", "selected_count"}, path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(random.Random(3).sample(DIVERSE, 6), 3))
def test_diverse_types_are_captured_with_all_inputs_and_trained(name):
    record = architecture_record(name)
    for step in ("forward", "train"):
        assert record[step]["ok"], record[step]
        assert record[step]["lacking"] == []
        assert record[step]["cpu_s"] <= 60


def routed(**options):
    import torch

    def experts(x, weight):
        chosen = torch.nn.functional.one_hot((x @ weight[0, :, :4]).topk(2, dim=-1).indices, 4)
        outputs = x.new_zeros(x.shape)
        for expert in torch.greater(chosen.sum((0, 1)), 0).nonzero():
            _, rows = torch.where(chosen[..., expert[0]].T)
            outputs.index_add_(0, rows, x[rows] @ weight[expert[0]])
        return outputs

    inputs = lambda: ((torch.rand(6, 8), torch.rand(4, 8, 8)), {})  # noqa: E731
    return capture_torch(lambda: experts, inputs, CaptureOptions(guess_sizes=True), name="m", **options)


def test_a_loop_over_experts_does_the_work_of_every_token_with_each_of_its_experts_once():
    workload = routed(expert_counts=frozenset({4}))
    products = [dict(call.case.axes)["m"] for call in workload.calls if call.case.op == "gemm"]
    assert products == [6, 3, 3, 3, 3]  # the router; then six tokens with two experts each, in turn over four
    assert [one for one in workload.assumptions if "topk = experts in turn" in one]
    unrouted = [dict(call.case.axes)["m"] for call in routed().calls if call.case.op == "gemm"]
    assert sum(unrouted) > sum(products)


def test_a_video_session_looks_back_at_a_frame_that_was_seen_before():
    workload = capture_model_type("sam3_tracker_video", CaptureOptions(layers=2))
    kinds = {buffer.name: buffer.kind for buffer in workload.buffers if buffer.name}
    read = {workload.buffers[use.buffer].name for call in workload.calls for use in call.reads}
    assert kinds["video"] == "input"
    assert "video" in read
    assert {name for name in read if kinds.get(name) == "kv_cache"} >= {"memory.0.maskmem_features"}


def test_a_session_of_detection_follows_one_object_and_says_that_none_is_found_anew():
    workload = capture_model_type("sam3_video", CaptureOptions(layers=2))
    kinds = {buffer.name: buffer.kind for buffer in workload.buffers if buffer.name}
    read = {workload.buffers[use.buffer].name for call in workload.calls for use in call.reads}
    assert {name for name in read if kinds.get(name) == "kv_cache"} >= {"memory.0.maskmem_features"}
    assert any("0 of the elements" in note for note in workload.assumptions)
    modules = {call.module.split(".")[0] for call in workload.calls}
    assert {"detector_model", "tracker_model", "tracker_neck"} <= modules


def test_a_step_that_takes_one_example_only_is_recorded_with_one():
    record = architecture_record("tvp", steps=("forward",))["forward"]
    assert (record["ok"], record["batch"]) == (True, 1)
