"""Recurrences of transformers' models: one call each, forward and backward, and the same numbers as the references."""

import json
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.huggingface.architecture import capture_architecture  # noqa: E402
from nearpeak.frontends.torch.kernel_packages import kernel_name  # noqa: E402
from nearpeak.ops import OPS  # noqa: E402

SMALL = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
MODELS = {
    "mamba": ({**SMALL, "state_size": 8, "expand": 2}, "selective_scan"),
    "mamba2": ({**SMALL, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2}, "ssd_scan"),
    "falcon_mamba": ({**SMALL, "state_size": 8, "intermediate_size": 64}, "selective_scan"),
    "rwkv": ({**SMALL, "attention_hidden_size": 32}, "wkv"),
    "olmo_hybrid": (
        {**SMALL, **HEADS, "pad_token_id": 0, "eos_token_id": 1,
         "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 16}, "delta_rule",
    ),
}  # fmt: skip
"""Configuration of small models by type, with the operator of their recurrence."""


@pytest.fixture
def recurrences(tmp_path):
    """A function that captures a model type and counts its recurrent cases by phase of the step and of the operator."""

    def counted(model_type, step):
        config, op = MODELS[model_type]
        path = tmp_path / "config.json"
        names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        path.write_text(json.dumps({"model_type": model_type, "architectures": [names[model_type]], **config}))
        sizes = {"kv": 16, "batch": 1} if step == "decode" else {"sequence": 48, "batch": 2}
        workload = capture_architecture(path, CaptureOptions(step=step, dtype="bf16", **sizes))
        assert not workload.uncovered_counts()
        calls = [call for call in workload.calls if call.case is not None and call.case.op == op]
        assert all(call.module and call.source for call in calls)
        return Counter((call.phase, call.case.phase) for call in calls), calls[0].case.record()

    return counted


LAYERS = {"olmo_hybrid": 1}


@pytest.mark.parametrize("model_type", list(MODELS))
def test_every_recurrent_layer_is_one_call_forward_and_one_backward(recurrences, model_type):
    counts, record = recurrences(model_type, "train")
    layers = LAYERS.get(model_type, 2)
    assert counts == {("forward", "forward"): layers, ("backward", "backward"): layers}
    assert (record["batch"], record["tokens"]) == (2, 48)


@pytest.mark.parametrize("model_type", list(MODELS))
def test_a_decode_step_takes_one_token_through_the_state(recurrences, model_type):
    counts, record = recurrences(model_type, "decode")
    assert counts == {("forward", "forward"): LAYERS.get(model_type, 2)}
    assert (record["batch"], record["tokens"], record["begun"], record["ended"]) == (1, 1, True, True)


def drawn(op, **arguments):
    """Arguments with defaults, random operands and the reference's results."""
    case = OPS[op].case(**arguments, dtype="fp64")
    full = {name: value for name, value in case.record().items() if name not in ("op", "phase")}
    random = np.random.default_rng(5)
    arrays = {name: random.standard_normal(t.shape) for name, t in OPS[op].inputs(**full).items()}
    return arrays, {name: torch.as_tensor(a) for name, a in arrays.items()}, full


def assert_close(found, wanted):
    np.testing.assert_allclose(found.double().numpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_the_chunked_state_space_scan_is_the_reference():
    from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan

    _arrays, t, full = drawn(
        "ssd_scan", batch=2, tokens=10, heads=4, dim=3, state=5, groups=2, begun=True, ended=True
    )  # fmt: skip
    t["a"] = -t["a"].abs()
    wanted = OPS["ssd_scan"].reference({name: x.numpy() for name, x in t.items()}, **full)
    y, final = mamba2_chunk_scan(
        t["x"], t["dt"], t["a"], t["b"], t["c"], 4, D=t["d"], dt_bias=t["bias"], dt_softplus=True,
        initial_states=t["state"].transpose(-1, -2), return_final_states=True,
    )  # fmt: skip
    assert_close(y, wanted["y"])
    assert_close(final.transpose(-1, -2), wanted["final"])
    assert kernel_name(mamba2_chunk_scan) == "mamba_chunk_scan_combined"


def test_the_selective_scan_is_the_reference():
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    _arrays, t, full = drawn("selective_scan", batch=2, tokens=6, channels=3, state=4, gate=True, ended=True)
    t["a"] = -t["a"].abs()
    wanted = OPS["selective_scan"].reference({name: x.numpy() for name, x in t.items()}, **full)
    u, dt, b, c, z = (t[name].transpose(1, 2) for name in ("x", "dt", "b", "c", "z"))
    y, final = mamba_selective_scan(
        u, dt, t["a"], b, c, D=t["d"], z=z, delta_bias=t["bias"], delta_softplus=True, return_last_state=True
    )
    assert_close(y.transpose(1, 2), wanted["y"])
    assert_close(final, wanted["final"])
    assert kernel_name(mamba_selective_scan) == "selective_scan_fn"


@pytest.mark.parametrize("decay", ["head", "channel"])
def test_the_chunked_delta_rule_is_the_reference(decay):
    from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    function = torch_chunk_gated_delta_rule if decay == "head" else chunk_kimi_delta_attention
    _arrays, t, full = drawn(
        "delta_rule", batch=2, tokens=9, heads=2, key_dim=4, dim=3, decay=decay, begun=True, ended=True
    )  # fmt: skip
    t["g"], t["w"] = -t["g"].abs(), t["w"].sigmoid()
    t["k"] = t["k"] / t["k"].norm(dim=-1, keepdim=True)
    scaled = {**t, "q": t["q"] * 4**-0.5}
    wanted = OPS["delta_rule"].reference({name: x.numpy() for name, x in scaled.items()}, **full)
    options = {"chunk_size": 4, "initial_state": t["state"], "output_final_state": True}
    o, final = function(t["q"], t["k"], t["v"], g=t["g"], beta=t["w"], **options)
    assert_close(o, wanted["o"])
    assert_close(final, wanted["final"])
    assert kernel_name(function) == ("chunk_gated_delta_rule" if decay == "head" else "chunk_kda")


def test_the_average_of_rwkv_is_the_reference():
    from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention

    arrays, t, full = drawn("wkv", batch=2, tokens=7, channels=3)
    y, _state = rwkv_linear_attention(t["w"], t["u"], t["k"], t["v"])
    assert_close(y, OPS["wkv"].reference(arrays, **full)["y"])


def test_models_are_left_as_they_were():
    from transformers.models.mamba2 import modeling_mamba2

    before = modeling_mamba2.mamba2_chunk_scan
    from nearpeak.frontends.torch.kernel_packages import kernels_kept_whole

    class Part(torch.nn.Module):
        __module__ = modeling_mamba2.__name__

    with kernels_kept_whole(Part()):
        assert modeling_mamba2.mamba2_chunk_scan is not before
    assert modeling_mamba2.mamba2_chunk_scan is before


def test_an_associative_scan_is_the_calls_that_it_makes():
    from torch._higher_order_ops.associative_scan import associative_scan

    from nearpeak.frontends.torch.module_capture import capture_torch

    def function(x):
        return associative_scan(torch.mul, x, dim=0, combine_mode="generic")

    workload = capture_torch(lambda: function, lambda: ((torch.empty(8, 4),), {}), name="scan")
    products = [call.case.record() for call in workload.calls if call.operator == "aten.mul.Tensor"]
    # Eight elements pair up to four, two and one; back down, the others follow: 4 + 2 + 1 and 0 + 1 + 3.
    assert sum(p["elements"] for p in products) == 4 * (4 + 2 + 1 + 0 + 1 + 3)
    assert not workload.uncovered_counts()
