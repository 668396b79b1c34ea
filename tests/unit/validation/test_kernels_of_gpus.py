"""What right kernels of GPUs do otherwise than those of CPUs is right, and no more than that."""

import functools

import pytest
from tests.sampling import first_of_each, in_turn

import nearpeak
from nearpeak.validation import validate

torch = pytest.importorskip("torch")
from tests.unit.validation import gpu_kernels  # noqa: E402  # needs PyTorch

LSTM = {"batch": 2, "steps": 5, "features": 3, "hidden": 4, "bias": True, "state": True}
BOTH_WAYS = {"batch": 2, "steps": 3, "features": 3, "hidden": 4, "layers": 2, "directions": 2, "state": True}
BLOCKS = {"rows": 5, "columns": 7, "block_rows": 1}
RIGHT = [
    *(("group_norm", {"batch": 2, "channels": 6, "spatial": 5, "groups": 3}, one) for one in ("bf16", "fp16")),
    ("group_norm", {"batch": 1, "channels": 4, "spatial": 9, "groups": 4}, "bf16"),
    ("group_norm", {"batch": 3, "channels": 8, "spatial": 64, "groups": 2}, "fp16"),
    ("group_norm", {"batch": 2, "channels": 6, "spatial": 5, "groups": 3, "param_dtype": "fp32"}, "bf16"),
    *(("rms_norm", {"rows": 4, "hidden": 9}, one) for one in ("fp32", "bf16", "fp16")),
    ("rms_norm", {"rows": 2, "hidden": 7, "affine": False}, "fp32"),
    ("mode", {"rows": 3, "columns": 9}, "int64"),
    ("mode", {"rows": 5, "columns": 2}, "int64"),
    *(("recurrent", {**LSTM, "cell": one}, "fp32") for one in ("lstm", "gru", "rnn_tanh")),
    ("recurrent", {**BOTH_WAYS, "cell": "lstm"}, "fp32"),
]


@pytest.mark.parametrize(
    ("op", "arguments", "dtype"), first_of_each(RIGHT), ids=lambda part: part if isinstance(part, str) else ""
)
def test_right_kernels_of_gpus_are_right(op, arguments, dtype):
    case = nearpeak.case(op, **arguments, dtype=dtype)
    for seed in range(2):
        found = validate(case, getattr(gpu_kernels, op), seed=seed)
        assert found.status == "PASS", [one for one in found.results if one.failed]


@pytest.mark.parametrize(("way", "arguments"), in_turn(
    ["reciprocal", "other way round", "quotient"],
    [{"rows": 5, "columns": 7}, BLOCKS, {**BLOCKS, "out_dtype": "int8"}],
), ids=str)  # fmt: skip
def test_scales_may_be_found_by_quotients_or_reciprocals(way, arguments):
    case = nearpeak.case("quantise", **arguments, dtype="fp32")
    for seed in range(2):
        found = validate(case, functools.partial(gpu_kernels.quantise, way=way), seed=seed)
        assert found.status == "PASS", [one for one in found.results if one.failed]


def of_another_row(tensors, **arguments):
    found = gpu_kernels.rms_norm(tensors, **arguments)["output"]
    return {"output": found + 0 * found.roll(1, 0)}


def scaled(tensors, *, by, **arguments):
    found = gpu_kernels.quantise(tensors, way="quotient", **arguments)
    return {**found, "scale": found["scale"] * by}


def mean_in_fp8(tensors, **arguments):
    def keep(one, dtype):
        return one.to(torch.float8_e5m2).float()

    return gpu_kernels.group_norm(tensors, keep=keep, **arguments)


WRONG = [
    ("rms_norm", {"rows": 4, "hidden": 9, "dtype": "fp32"}, of_another_row, "does not depend on it"),
    ("quantise", {"rows": 5, "columns": 7, "dtype": "fp32"}, functools.partial(scaled, by=1 + 2.0**-21), "scale"),
    ("group_norm", {"batch": 2, "channels": 6, "spatial": 5, "groups": 3, "dtype": "bf16"}, mean_in_fp8, "output"),
    ("recurrent", {**LSTM, "cell": "lstm", "dtype": "fp32"},
     functools.partial(gpu_kernels.recurrent, error=1e-5), "output"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arguments", "function", "said"), WRONG, ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_goes_beyond_that_is_wrong(op, arguments, function, said):
    found = validate(nearpeak.case(op, **arguments), function, seed=0)
    assert found.status == "NUMERIC_FAIL"
    assert any(said in one.reason for one in found.results)
