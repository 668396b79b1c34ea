"""Scans of hundreds of tokens in 16 bits: states in fp32 are right, those that are rounded at each token are not."""

import numpy as np
import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.ops import OPS
from nearpeak.ops.shared.gated_heads import _outputs
from nearpeak.validation.comparison.output_comparison import values_of
from nearpeak.validation.oracle.float64_oracle import draw_inputs

torch = pytest.importorskip("torch")
HEADS = {"heads": 2, "key_dim": 8, "dim": 8}
SCANS = [
    ("selective_scan", {"channels": 8, "state": 8}),
    ("ssd_scan", {"heads": 2, "dim": 8, "state": 8, "groups": 1}),
    ("linear_attention", {**HEADS, "decay": "none"}),
    ("linear_attention", {**HEADS, "decay": "constant"}),
    ("linear_attention", {**HEADS, "decay": "channel"}),
    ("delta_rule", {**HEADS, "decay": "head"}),
    ("wkv", {"channels": 8}),
]


def asked(op, axes, **formats):
    return draw_inputs(nearpeak.case(op, batch=1, tokens=300, ended=True, **axes, **formats), 3, "normal")


def bounds_off(outputs, expected):
    """By how many bounds the worst element of any output is off."""
    got = values_of(outputs)
    assert all(np.isfinite(one.values).all() for one in expected.values())
    return max(np.max(np.abs(got[name] - one.values) / one.bound) for name, one in expected.items())


@pytest.mark.parametrize(("scan", "dtype"), in_turn(SCANS, ["bf16", "fp16"]))
def test_pytorch_s_way_is_right_over_hundreds_of_tokens(scan, dtype):
    op, axes = scan
    one = asked(op, axes, dtype=dtype, state_dtype="fp32")
    outputs = OPS[op].torch_call(one.tensors, **one.arguments)
    assert bounds_off(outputs, one.expected) <= 1
    kinds = {name: found.dtype for name, found in outputs.items()}
    out = "y" if "y" in kinds else "o"
    assert kinds.pop(out) == {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    assert set(kinds.values()) == {torch.float32}


def test_a_state_without_decay_that_is_rounded_at_each_token_is_refused():
    one = asked("linear_attention", {**HEADS, "decay": "none"}, dtype="bf16")
    given = {name: one.arguments[name] for name in ("ended", "heads", "key_heads", "decay")}
    assert bounds_off(_outputs(torch, one.tensors, **given), one.expected) > 1


@pytest.mark.parametrize(("op", "axes"), SCANS)
def test_a_gradient_through_all_tokens_takes_no_square_of_them(op, axes):
    one = asked(op, axes, dtype="fp32", state_dtype="fp32")
    given = {name: tensor.clone().requires_grad_() for name, tensor in one.tensors.items()}
    found = OPS[op].torch_call(given, **one.arguments)
    steps, waiting = set(), [next(iter(found.values())).grad_fn]
    while waiting:
        step = waiting.pop()
        if step is not None and step not in steps:
            steps.add(step)
            waiting += [one for one, _ in step.next_functions]
    names = [step.name() for step in steps]
    assert "UnbindBackward0" in names
    assert names.count("SelectBackward0") <= 2  # each of them is as large as what it selects from
