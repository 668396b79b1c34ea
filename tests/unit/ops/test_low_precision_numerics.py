"""Quantisation and products of quantised numbers keep the properties that their formats promise."""

import numpy as np
import pytest
import torch

from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.ops.shared.expert_load import counts_of, touched_groups
from nearpeak.ops.shared.narrow_arithmetic import largest_of, narrowed_values

FORMATS = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def arguments(op, **given):
    record = OPS[op].case(**given).record()
    return {name: value for name, value in record.items() if name not in ("op", "phase")}


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_of_a_narrow_format_and_all_midpoints_round_as_pytorch_rounds(name):
    codes = torch.arange(256, dtype=torch.uint8).view(FORMATS[name]).float()
    exact = np.unique(codes[codes.isfinite()].numpy())
    values = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2, np.nextafter(exact, np.float32(np.inf))])
    limit = largest_of(name)
    wanted = torch.from_numpy(values).clamp(-limit, limit).to(FORMATS[name]).float().numpy()
    np.testing.assert_array_equal(narrowed_values(values, name), wanted)


@pytest.mark.parametrize(("name", "relative"), [("fp8_e4m3", 2.0**-4), ("fp8_e5m2", 2.0**-3)])
@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30])
def test_quantised_numbers_come_back_within_half_a_step(name, relative, factor):
    x = np.random.default_rng(1).standard_normal((8, 256)) * factor
    given = arguments("quantise", rows=8, columns=256, dtype="fp32", out_dtype=name, block_rows=1)
    found = OPS["quantise"].reference({"x": x}, **given)
    back = found["q"] * found["scale"][:, None]
    smallest = {"fp8_e4m3": 2.0**-10, "fp8_e5m2": 2.0**-17}[name] * found["scale"][:, None]
    assert (np.abs(back - x) <= relative * np.abs(x) * (1 + 1e-6) + smallest).all()
    assert np.abs(found["q"]).max() == largest_of(name)


SPECIAL = {"zeros": 0.0, "tiny": 1e-45, "subnormal": 1e-40, "largest": 3.4e38, "infinite": np.inf, "no number": np.nan}


@pytest.mark.parametrize("scale_dtype", ["fp32", "fp8_e8m0"])
@pytest.mark.parametrize("special", SPECIAL)
def test_special_values_get_a_usable_scale_and_the_same_numbers_as_pytorch(special, scale_dtype):
    given = arguments(
        "quantise", rows=2, columns=64, dtype="fp32", block_rows=1, block_columns=32, scale_dtype=scale_dtype
    )
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    x[0, :32] = SPECIAL[special]
    with np.errstate(all="ignore"):
        expected = OPS["quantise"].reference({"x": x}, **given)
    got = OPS["quantise"].torch_call({"x": torch.as_tensor(x)}, **given)
    for name in ("q", "scale"):
        np.testing.assert_array_equal(got[name].float().numpy(), expected[name])
    assert np.isfinite(expected["scale"]).all()
    assert (expected["scale"] > 0).all()
    assert np.isnan(expected["q"][0, :32]).all() == (special == "no number")


def test_learnable_scales_get_the_gradients_that_pytorch_gives():
    given = {"channels": 4, "columns": 64, "dtype": "fp32", "scale_dtype": "fp32", "learnable": True}
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, 64, generator=generator)
    tensors = {"x": x, "scale": torch.rand(4, generator=generator) * 0.2 + 0.1, "zero": torch.zeros(4)}
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    y = OPS["fake_quantise"].torch_call(leaves, **given)["y"]
    upstream = torch.randn(y.shape, generator=generator)
    grads = torch.autograd.grad(y, list(leaves.values()), upstream)
    arrays = {name: tensor.detach().double().numpy() for name, tensor in leaves.items()}
    expected = OPS["fake_quantise"].backward_reference({**arrays, "grad_y": upstream.double().numpy()}, **given)
    for name, grad in zip(leaves, grads, strict=True):
        np.testing.assert_allclose(grad.numpy(), expected[f"grad_{name}"], rtol=1e-4, atol=1e-5)


def test_muon_of_pytorch_agrees_with_the_reference_within_bf16():
    given = arguments("muon", rows=24, columns=40, dtype="fp32")
    generator = torch.Generator().manual_seed(3)
    tensors = {name: torch.randn(24, 40, generator=generator) for name in ("parameter", "grad", "momentum")}
    arrays = {name: tensor.double().numpy() for name, tensor in tensors.items()}
    before = arrays["parameter"]
    expected = OPS["muon"].reference(arrays, **given)
    got = OPS["muon"].torch_call({name: tensor.clone() for name, tensor in tensors.items()}, **given)
    kept = before * (1 - 1e-3 * 0.1)
    change, wanted = got["parameter"].double().numpy() - kept, expected["parameter"] - kept
    assert np.linalg.norm(change - wanted) <= 0.03 * np.linalg.norm(wanted)
    np.testing.assert_allclose(got["momentum"].numpy(), expected["momentum"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_pytorchs_int4_product_is_ours_with_its_zero_points(size):
    m, n, k = 4, 64, 256
    random = np.random.default_rng(4)
    codes, scale = random.integers(0, 16, (n, k)), random.integers(1, 5, (n, k // size)) / 8
    zero = random.integers(4, 12, (n, k // size))
    a = random.integers(-4, 5, (m, k)) / 4
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.as_tensor(codes, dtype=torch.int32), 1)
    both = torch.as_tensor(np.stack([scale, (8 - zero) * scale], -1)).transpose(0, 1).contiguous().bfloat16()
    got = torch.ops.aten._weight_int4pack_mm_for_cpu(torch.as_tensor(a).bfloat16(), packed, size, both)
    given = arguments("scaled_gemm", m=m, n=n, k=k, dtype="bf16", b_dtype="int4", a_scales=0,
                      b_scales=scale.size, b_zeros=scale.size, scale_dtype="bf16")  # fmt: skip
    arrays = {
        "a": a,
        "b": codes.T.astype(float),
        "b_scale": scale.reshape(-1),
        "b_zero": zero.reshape(-1).astype(float),
    }
    expected = OPS["scaled_gemm"].reference(arrays, **given)["y"]
    np.testing.assert_allclose(got.double().numpy(), expected, rtol=2.0**-7, atol=2.0**-7 * np.abs(expected).max())


@pytest.mark.parametrize(("tokens", "wanted"), [(1, 8), (32, 163.3), (128, 251.6)])
def test_tokens_touch_as_many_experts_as_theory_expects(tokens, wanted):
    # 256 experts, 8 each: 256 * (1 - (1 - 8 / 256) ** tokens) are expected.
    found = [touched_groups(f"uniform top_k=8 seed={seed}", 8 * tokens, 256) for seed in range(40)]
    assert np.mean(found) == pytest.approx(wanted, abs=1.5)


def test_zipf_loads_fall_with_the_experts_number_and_are_the_same_each_time():
    counts = counts_of("zipf exponent=1 seed=5", 100_000, 16)
    weights = 1 / np.arange(1, 17)
    assert sum(counts) == 100_000
    np.testing.assert_allclose(np.array(counts) / 100_000, weights / weights.sum(), rtol=0.1)
    counts_of.cache_clear()
    assert counts_of("zipf exponent=1 seed=5", 100_000, 16) == counts


def test_a_load_too_large_to_draw_is_refused_and_one_at_the_limit_of_use_is_not():
    with pytest.raises(SpecError, match=r"16777216 tokens choosing among 4096 groups .*counts rows="):
        counts_of("uniform top_k=2 seed=0", 2**25, 4096)
    assert sum(counts_of("uniform top_k=8 seed=0", 2**18, 256)) == 2**18


@pytest.mark.parametrize(("load", "message"), [
    ("normal", "not known"), ("uniform top=8", "no option 'top'"), ("uniform top_k=x", "whole number"),
    ("zipf exponent=x", "not a number"), ("histogram", "weights is missing"),
    ("counts rows=1,2", "2 groups with 3 rows"),
    ("histogram weights=1,2", "2 weights for groups=3"), ("uniform top_k=4", "top_k=4 of 3"),
    ("counts rows=a,b", "list of whole numbers"),
])  # fmt: skip
def test_loads_that_make_no_sense_are_refused_by_name(load, message):
    with pytest.raises(SpecError, match=message):
        counts_of(load, 8, 3)
