"""Captured models against figures that are known independently: published counts and closed forms."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.frontends.torch.problem_file import capture_problem
from nearpeak.ops import work_of

pytestmark = pytest.mark.slow

PROBLEMS = Path(__file__).parents[2] / "fixtures" / "problems"


def matrix_flop(workload, *, phase="forward", ops=("gemm", "conv", "attention")):
    total = 0
    for call in workload.calls:
        if call.phase == phase and call.case is not None and call.case.op in ops:
            flop = work_of(call.case).flop
            total += call.call_count * sum(n for unit, n in flop.items() if unit.startswith("matrix."))
    return total


def ops(workload, phase="forward"):
    return Counter(call.case.op for call in workload.calls if call.phase == phase and call.case is not None)


def llama(layers, *, step="forward", positions=2048):
    """Llama-3-8B, dimensions of its published config.json (meta-llama/Meta-Llama-3-8B)."""
    transformers = pytest.importorskip("transformers")
    import torch

    config = transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
        num_hidden_layers=layers, use_cache=False,
    )  # fmt: skip

    def inputs():
        ids = torch.zeros(1, positions, dtype=torch.int64)
        return (), {"input_ids": ids} | ({"labels": ids} if step == "train" else {})

    build = lambda: transformers.LlamaForCausalLM(config).bfloat16()  # noqa: E731
    return capture_torch(build, inputs, CaptureOptions(step=step), name="llama")


def test_resnet50_has_its_published_multiplications():
    workload = capture_problem(PROBLEMS / "resnet50.py")
    dense = sum(_dense_flop(call.case) for call in workload.calls if call.case is not None)
    # 4.089 GMAC with every tap of the padding counted, as ptflops and the ONNX model zoo's graph give it.
    assert dense == 2 * 4_089_184_256
    assert matrix_flop(workload) < dense
    assert ops(workload)["conv"] == 53
    assert workload.origin["parameters"] == "25557032"


def _dense_flop(case):
    axes = dict(case.axes)
    if case.op == "gemm":
        return 2 * axes["batch"] * axes["m"] * axes["n"] * axes["k"]
    if case.op != "conv":
        return 0
    out = axes["batch"] * axes["out_channels"]
    for side in ("d", "h", "w"):
        kernel = axes[f"k{side}"]
        out *= kernel * ((axes[side] + 2 * axes[f"p{side}"] - kernel) // axes[f"s{side}"] + 1)
    return 2 * out * axes["in_channels"] // axes["groups"]


def test_llama_3_8b_prefill_equals_its_closed_form():
    workload = llama(32)
    attention = 32 * 32 * (2048 * 2049 // 2) * 2 * (128 + 128)
    linear = 2 * 2048 * (32 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336) + 4096 * 128256)
    assert round(linear / 1e9) == 30_739
    assert matrix_flop(workload, ops=("gemm",)) == linear
    assert matrix_flop(workload, ops=("attention",)) == attention
    assert (ops(workload)["gemm"], ops(workload)["attention"]) == (7 * 32 + 1, 32)
    assert workload.origin["parameters"] == "8030261248"


def test_the_gradient_of_linear_layers_is_twice_their_forward():
    workload = llama(2, step="train", positions=128)
    assert matrix_flop(workload, phase="backward", ops=("gemm",)) == 2 * matrix_flop(workload, ops=("gemm",))
    assert ops(workload, "backward")["attention"] == 2


def test_bert_base_equals_its_closed_form():
    transformers = pytest.importorskip("transformers")
    import torch

    config = transformers.BertConfig()
    workload = capture_torch(
        lambda: transformers.BertModel(config), lambda: ((torch.zeros(1, 128, dtype=torch.int64),), {}), name="bert"
    )
    assert matrix_flop(workload) == 22_348_431_360


def test_almost_every_call_of_a_large_model_is_attributed():
    workload = llama(2, step="train", positions=128)
    for phase in ("forward", "backward"):
        calls = [call for call in workload.calls if call.phase == phase]
        assert sum(1 for call in calls if call.source) >= 0.99 * len(calls)  # calls of the model itself have no path
