"""Cases too large for the contract: said so, and a sample of what is timed compared with float64."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.case_tensors import size_limits
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.cli import application
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement.large_cases.independent_axes import free_axes
from nearpeak.measurement.large_cases.sampled_check import spot_checked
from nearpeak.measurement.runners.callable import UserCallable
from nearpeak.measurement.timed_runner import TimedRunner

pytest.importorskip("torch")
GEMM = nearpeak.case("gemm", m=300, n=200, k=64, dtype="fp32")
TIMING = Timing(budget_s=0.01, flush_bytes=0, cache="hot")


def product(tensors, **_):
    return {"y": tensors["a"] @ tensors["b"]}


def last_row(tensors, **_):
    y = tensors["a"] @ tensors["b"]
    y[:, -1] *= 1.5
    return {"y": y}


def last_column(tensors, **_):
    y = tensors["a"] @ tensors["b"]
    y[:, :, -1] += 1.0
    return {"y": y}


def cut_short(tensors, **_):
    return {"y": (tensors["a"] @ tensors["b"])[:, :-1]}


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    monkeypatch.setattr(size_limits, "LARGEST_FLOP", 1)


def taken(function):
    backend = UserCallable.of(function, TIMING)
    return TimedRunner(backend, TIMING, argument=backend.argument).measure(GEMM)


def test_a_right_result_is_timed_and_said_to_be_unchecked():
    found = taken(product)
    assert found.samples_s
    assert found.validation is None
    assert "not validated: too large for rounds in float64" in found.note
    assert "agrees with float64 (300 of 300 m, 200 of 200 n)" in found.note


@pytest.mark.parametrize(("function", "said"), [
    (last_row, "y[0, 299, "), (last_column, ", 199] is"), (cut_short, "a timed call gives y[1, 299, 200]"),
])  # fmt: skip
def test_a_wrong_result_is_incorrect_and_names_the_place(function, said):
    found = taken(function)
    assert (found.outcome, found.samples_s) == (Outcome.INCORRECT, ())
    assert said in found.note
    assert found.validation.command.startswith("nearpeak measure gemm m=300 n=200 k=64 dtype=fp32 --runner callable:")


def test_the_row_says_in_text_and_json_that_it_is_unchecked(monkeypatch):
    words = ["measure", "gemm", "m=1024", "n=1024", "k=1024", "dtype=fp32", "--budget", "10 ms", "--cache", "hot"]
    text = CliRunner().invoke(application(), [*words, "--text"]).stdout
    assert "not validated: too large" in " ".join(text.split())
    row = json.loads(CliRunner().invoke(application(), [*words, "--json"]).stdout.splitlines()[-1])
    assert (row["validation"], "not validated" in row["note"]) == (None, True)


@pytest.mark.parametrize(("case", "axes"), [
    (nearpeak.case("gemm", m=512, n=512, k=512, dtype="bf16", bias=True), [("m",), ("n",)]),
    (nearpeak.case("layer_norm", rows=4096, hidden=4096, dtype="bf16"), [("rows",)]),
    (nearpeak.case("scan", rows=512, length=512, dtype="fp32"), [("rows",)]),
    (nearpeak.case("dropout", elements=4096, dtype="fp32"), []),
])  # fmt: skip
def test_axes_are_free_where_results_follow_from_their_own_inputs(case, axes):
    assert [free.axes for free in free_axes(case)] == axes


def test_a_large_sample_has_the_ends_and_sees_one_wrong_row():
    case = nearpeak.case("gemm", m=3000, n=70, k=3000, dtype="fp32")
    inputs = drawn(case)[0]
    right = np.matmul(inputs["a"], inputs["b"])
    result, said = spot_checked(case, inputs, {"y": right})
    assert (result.failed, "of 3000 m" in said) == (False, True)
    right[0, 2999] += 1.0
    result, _ = spot_checked(case, inputs, {"y": right})
    assert result.status == "NUMERIC_FAIL"
    assert result.worst.offset[1] == 2999


CAUSAL = nearpeak.case("attention", batch=1, heads=2, q=700, kv=900, dim=16, causal=True, align="lower_right",
                       dtype="fp32")  # fmt: skip


def attended(arrays, shift):
    scores = arrays["query"] @ arrays["key"].swapaxes(-1, -2) / 4
    q, kv = scores.shape[-2:]
    scores = np.where(np.arange(kv) <= np.arange(q)[:, None] + shift, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return {"output": weights / weights.sum(-1, keepdims=True) @ arrays["value"]}


@pytest.mark.parametrize(("shift", "status"), [(200, "PASS"), (199, "NUMERIC_FAIL"), (0, "NUMERIC_FAIL")])
def test_queries_of_causal_attention_are_each_by_themselves(shift, status):
    inputs = drawn(CAUSAL)[0]
    result, said = spot_checked(CAUSAL, inputs, attended(inputs, shift))
    assert (result.status, "of 700 q" in said) == (status, True)


def test_a_causal_answer_that_is_wrong_in_its_last_row_names_it():
    inputs = drawn(CAUSAL)[0]
    wrong = attended(inputs, 200)
    wrong["output"][0, 1, 699] *= 1.01
    result, _ = spot_checked(CAUSAL, inputs, wrong)
    assert (result.status, result.worst.offset[:3]) == ("NUMERIC_FAIL", (0, 1, 699))


GRADIENT = nearpeak.case("softmax", "backward", rows=4096, columns=300, dtype="fp32")


def test_a_gradient_has_a_sample_by_what_came_from_above():
    inputs, above = drawn(GRADIENT)[0], {"grad_y": np.random.default_rng(0).standard_normal((4096, 300))}
    y = np.exp(inputs["x"].astype(float))
    y /= y.sum(-1, keepdims=True)
    right = y * (above["grad_y"] - (above["grad_y"] * y).sum(-1, keepdims=True))
    result, said = spot_checked(GRADIENT, inputs, {"grad_x": right}, above)
    assert (result.status, said.startswith("grad_x: ")) == ("PASS", True)
    right[-1] *= 1.01
    result, _ = spot_checked(GRADIENT, inputs, {"grad_x": right}, above)
    assert (result.status, result.worst.offset[0]) == ("NUMERIC_FAIL", 4095)
    assert spot_checked(GRADIENT, inputs, {"grad_x": right})[0] is None


@pytest.mark.parametrize(("case", "output", "axes"), [
    (nearpeak.case("conv", "backward", batch=9, in_channels=10, out_channels=12, w=9, kw=3, dtype="fp32"),
     "grad_weight", [("in_channels",), ("out_channels",)]),
    (nearpeak.case("conv", "backward", batch=9, in_channels=10, out_channels=12, w=9, kw=3, dtype="fp32"),
     "grad_input", [("batch",), ("in_channels",)]),
    (nearpeak.case("layer_norm", "backward", rows=50, hidden=60, dtype="bf16"), "grad_input", [("rows",)]),
])  # fmt: skip
def test_axes_of_a_gradient_are_free_where_it_is_no_sum_over_them(case, output, axes):
    assert [free.axes for free in free_axes(case, output)] == axes


STEP = nearpeak.case("adamw", parameters=5000, dtype="fp32")


def wrong_rate(tensors, **arguments):
    from nearpeak.ops import OPS

    before = tensors["parameter"].clone()
    found = OPS["adamw"].torch_call(tensors, **arguments)
    tensors["parameter"].copy_(before + 0.9 * (tensors["parameter"] - before))
    return found


def copied(tensors, **arguments):
    from nearpeak.ops import OPS

    return OPS["adamw"].torch_call({name: one.clone() for name, one in tensors.items()}, **arguments)


@pytest.mark.parametrize(("function", "outcome"), [("right", ""), (copied, ""), (wrong_rate, Outcome.INCORRECT)])
def test_what_updates_its_inputs_is_asked_once_more_from_where_it_is(function, outcome):
    from nearpeak.ops import OPS

    backend = UserCallable.of(OPS["adamw"].torch_call if function == "right" else function, TIMING)
    found = TimedRunner(backend, TIMING, argument=backend.argument).measure(STEP)
    if outcome:
        assert found.outcome is outcome
    else:
        assert "agrees with float64 (4096 of 5000 parameters)" in found.note
