"""Shortcuts that are right for ordinary numbers, and wrong for some: each is found by a round of its own."""

import functools
import math

import pytest
from tests.sampling import long

import nearpeak
from nearpeak.validation import pytorch, validate
from nearpeak.validation.running.implementation_run import Implementation

torch = pytest.importorskip("torch")


def wide(function):
    """Return a kernel that computes in fp32 and rounds once."""

    def kernel(tensors, **_):
        x = next(iter(tensors.values()))
        return {"y": function(x.float()).to(x.dtype)}

    return kernel


def tanh_by_exp(x):
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + (torch.exp(2 * u) - 1) / (torch.exp(2 * u) + 1))


def exponentials(largest):
    """Return a softmax that subtracts what it takes for the largest of a row."""

    def kernel(x):
        raised = torch.exp(x - largest(x))
        return raised / raised.sum(-1, keepdim=True)

    return wide(kernel)


def of_first(count):
    return lambda x: x[..., : count(x.shape[-1])].amax(-1, keepdim=True)


def from_start(least):
    return lambda x: x.amax(-1, keepdim=True).clamp(min=least)


def zeros_for_nothing(x):
    return torch.where(torch.isneginf(x).all(-1, keepdim=True), torch.zeros_like(x), torch.softmax(x, -1))


def in_one_pass(tensors, **_):
    x, (weight, bias) = tensors["input"], (tensors[name] for name in ("weight", "bias"))
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean**2
    return {"output": (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias}


def nan_in_the_last_alone(tensors, **_):
    x = tensors["x"]
    y = x.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(-1)
    return {"y": torch.where(x[..., -1].isnan(), torch.nan, y)}


def largest_from(least):
    return lambda tensors, **_: {"y": tensors["x"].clamp(min=least).amax(-1)}


def squares_in_fp16(tensors, **_):
    squares = (tensors["x"].half() ** 2).float()
    return {"y": squares.sum(-1).sqrt().to(tensors["x"].dtype)}


def by_fp16(tensors, **_):
    return {"y": (tensors["a"].half().float() @ tensors["b"].half().float()).to(tensors["a"].dtype)}


def attention_from_zero(tensors, **_):
    q, k, v = (tensors[name].float() for name in ("query", "key", "value"))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    raised = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=0.0))
    return {"output": (raised / raised.sum(-1, keepdim=True).clamp(min=1e-30) @ v).to(tensors["query"].dtype)}


def head(function, dtype="fp32"):
    return ("elementwise", {"elements": 60, "function": function, "dtype": dtype})


SOFTMAX = ("softmax", {"rows": 4, "columns": 300, "dtype": "fp32"})
MAX = ("reduce", {"outputs": 5, "reduced": 9, "function": "max", "dtype": "fp32"})
WRONG = [
    (*head("silu"), wide(lambda x: x * torch.exp(x) / (1 + torch.exp(x)))),
    (*head("softplus", "bf16"), wide(lambda x: torch.log(1 + torch.exp(x)))),
    (*head("gelu_tanh"), wide(tanh_by_exp)),
    (*head("log_sigmoid"), wide(lambda x: -torch.log1p(torch.exp(-x)))),
    (*head("gelu"), wide(lambda x: torch.nn.functional.gelu(x).clamp(max=50))),
    (*head("sigmoid"), wide(lambda x: torch.sigmoid(x.clamp(-10, 10)))),
    (*head("log1p"), wide(lambda x: torch.log(1 + x))),
    (*SOFTMAX, exponentials(of_first(lambda count: count // 2))),
    (*SOFTMAX, exponentials(of_first(lambda count: count // 128 * 128))),
    (*SOFTMAX, exponentials(from_start(0.0))),
    (*SOFTMAX, exponentials(from_start(-1e4))),
    (*SOFTMAX, wide(zeros_for_nothing)),
    ("layer_norm", {"rows": 6, "hidden": 64, "dtype": "fp32"}, in_one_pass),
    *(
        ("attention", {"batch": 1, "heads": 2, "q": 3, "kv": 40, "dim": dim, "dtype": dtype}, attention_from_zero)
        for dim, dtype in ((64, "fp32"), (4, "bf16"))
    ),
    *(
        long("attention", {"batch": 1, "heads": 2, "q": 3, "kv": 40, "dim": dim, "dtype": dtype}, attention_from_zero)
        for dim, dtype in ((128, "bf16"), (64, "fp16"))
    ),
    (*MAX, nan_in_the_last_alone),
    (*MAX, largest_from(-1e4)),
    ("reduce", {"outputs": 5, "reduced": 9, "function": "norm", "dtype": "fp16"}, squares_in_fp16),
    ("gemm", {"m": 8, "n": 9, "k": 17, "dtype": "bf16"}, by_fp16),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "kernel"), WRONG)
def test_shortcuts_are_found(op, arguments, kernel):
    case = nearpeak.case(op, **arguments)
    found = validate(case, Implementation(name="shortcut", call=kernel), seed=1)
    assert {one.check for one in found.results if one.failed} & {"V3", "V4", "V7"}, "what the rounds show, no crash"
    assert not any("CRASH" in one.status or "SHAPE" in one.status for one in found.results)
    assert status_of_pytorch(case) == "PASS"


@functools.cache
def status_of_pytorch(case):
    """What PyTorch's own kernel gets, which several shortcuts are beside."""
    return validate(case, pytorch(case), seed=1).status


def test_a_kernel_that_must_be_given_its_outputs_is_differentiated_too():
    def kernel(tensors, out, **_):
        out["y"].copy_(torch.softmax(tensors["x"], -1))

    case = nearpeak.case("softmax", rows=3, columns=5, dtype="fp32")
    assert validate(case, Implementation(name="into", call=kernel), seed=1).status == "PASS"


@pytest.mark.parametrize("seed", [0, *map(long, (1, 2))])
def test_what_reaches_the_end_of_its_format_is_no_error(seed):
    case = nearpeak.case("scaled_gemm", m=17, n=32, k=64, dtype="fp8_e4m3")
    assert validate(case, pytorch(case), seed=seed).status == "PASS"


def test_scales_may_be_applied_to_the_sum_where_the_format_has_no_infinity():
    def by_sum(tensors, **_):
        product = tensors["a"].float() @ tensors["b"].float() * (tensors["a_scale"] * tensors["b_scale"])
        return {"y": product.clamp(-448, 448).to(torch.float8_e4m3fn)}

    case = nearpeak.case("scaled_gemm", m=17, n=32, k=64, dtype="fp8_e4m3")
    assert validate(case, Implementation(name="by sum", call=by_sum), seed=1).status == "PASS"
