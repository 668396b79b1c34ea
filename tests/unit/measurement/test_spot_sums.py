"""Large cases whose results are sums over all rows, and grouped queries: each has a sample too."""

import numpy as np
import pytest

import nearpeak
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.measurement.large_cases.independent_axes import added_axes, free_axes
from nearpeak.measurement.large_cases.sampled_check import positions_of, spot_checked

torch = pytest.importorskip("torch")
NORM = nearpeak.case("layer_norm", "backward", rows=3000, hidden=256, dtype="fp32")


def of_norm():
    inputs = {name: torch.as_tensor(np.asarray(one)).requires_grad_() for name, one in drawn(NORM)[0].items()}
    above = np.random.default_rng(0).standard_normal((3000, 256)).astype(np.float32)
    y = torch.nn.functional.layer_norm(inputs["input"], (256,), inputs["weight"], inputs["bias"], 1e-5)
    found = torch.autograd.grad(y, list(inputs.values()), torch.as_tensor(above))
    arrays = {name: one.detach().numpy() for name, one in inputs.items()}
    return arrays, above, {f"grad_{name}": one.numpy().copy() for name, one in zip(inputs, found, strict=True)}


def without_last_row(inputs, above):
    x = inputs["input"].astype(float)
    row = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (above * row)[:-1].sum(0)


def test_the_gradient_of_a_norms_weight_is_added_up_over_all_rows():
    inputs, above, right = of_norm()
    result, said = spot_checked(NORM, inputs, right, {"grad_output": above})
    assert result.status == "PASS"
    assert "grad_weight: the sum over all 3000 rows in " in said
    for wrong in (without_last_row(inputs, above), right["grad_weight"] * 1.01, right["grad_weight"][::-1]):
        result, _ = spot_checked(NORM, inputs, {**right, "grad_weight": wrong}, {"grad_output": above})
        assert (result.status, result.worst.output) == ("NUMERIC_FAIL", "grad_weight")
    result, _ = spot_checked(NORM, inputs, {"grad_weight": right["grad_weight"][:-1]}, {"grad_output": above})
    assert result.status == "SHAPE_FAIL"


@pytest.mark.parametrize(("output", "axes"), [
    ("grad_weight", [("rows",)]), ("grad_bias", [("rows",)]), ("grad_input", []),
])  # fmt: skip
def test_what_adds_up_is_seen_on_a_small_case(output, axes):
    assert [free.axes for free in added_axes(NORM, output)] == axes


def test_pytorchs_own_sum_in_bf16_is_no_fault():
    case = nearpeak.case("layer_norm", "backward", rows=4096, hidden=64, dtype="bf16")
    inputs = {
        name: torch.as_tensor(np.asarray(one, dtype=np.float32)).bfloat16().requires_grad_()
        for name, one in drawn(case)[0].items()
    }
    above = torch.as_tensor(np.random.default_rng(0).standard_normal((4096, 64))).bfloat16()
    y = torch.nn.functional.layer_norm(inputs["input"], (64,), inputs["weight"], inputs["bias"], 1e-5)
    found = torch.autograd.grad(y, list(inputs.values()), above)
    outputs = {f"grad_{name}": one.float().numpy() for name, one in zip(inputs, found, strict=True)}
    arrays = {name: one.detach().float().numpy() for name, one in inputs.items()}
    assert spot_checked(case, arrays, outputs, {"grad_output": above.float().numpy()})[0].status == "PASS"


GROUPED = nearpeak.case("attention", batch=1, heads=24, kv_heads=6, q=40, kv=4000, dim=64, dtype="fp32")


def grouped(arrays, heads):
    """Attention of which each key head serves four queries' heads: those next to each other, or every sixth."""
    key, value = (heads(arrays[name]) for name in ("key", "value"))
    scores = arrays["query"].astype(float) @ key.swapaxes(-1, -2) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return {"output": weights / weights.sum(-1, keepdims=True) @ value}


def test_a_key_head_is_drawn_with_the_heads_that_it_serves():
    assert ("kv_heads", "heads") in [free.axes for free in free_axes(GROUPED)]
    assert len(next(at for free, at in positions_of(GROUPED).items() if free.axes[0] == "kv_heads")) < 6
    inputs = drawn(GROUPED)[0]
    result, said = spot_checked(GROUPED, inputs, grouped(inputs, lambda x: np.repeat(x, 4, axis=1)))
    assert (result.status, "of 6 kv_heads" in said) == ("PASS", True)
    result, _ = spot_checked(GROUPED, inputs, grouped(inputs, lambda x: np.tile(x, (1, 4, 1, 1))))
    assert result.status == "NUMERIC_FAIL"
    wrong = grouped(inputs, lambda x: np.repeat(x, 4, axis=1))
    wrong["output"][0, 23] *= 1.01
    result, _ = spot_checked(GROUPED, inputs, wrong)
    assert (result.status, result.worst.offset[1]) == ("NUMERIC_FAIL", 23)
