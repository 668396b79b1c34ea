"""Cases too large for the contract: said so, and a sample of what is timed compared with float64."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import application
from nearpeak.core.measurement import Outcome, Timing
from nearpeak.measure import contract
from nearpeak.measure.inputs import drawn
from nearpeak.measure.runners.callable import UserCallable
from nearpeak.measure.spot_check import free_axes, spot_checked
from nearpeak.measure.taking import TimedRunner

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
    monkeypatch.setattr(contract, "LARGEST_FLOP", 1)


def taken(function):
    backend = UserCallable.of(function, TIMING)
    return TimedRunner(backend, TIMING, argument=backend.argument).measure(GEMM)


def test_a_right_result_is_timed_and_said_to_be_unchecked():
    found = taken(product)
    assert found.samples_s
    assert found.validation is None
    assert "unchecked by the contract: too large for rounds in float64" in found.note
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
    text = CliRunner().invoke(application(), [*words, "--text"]).output
    assert "unchecked by the contract: too large" in " ".join(text.split())
    row = json.loads(CliRunner().invoke(application(), [*words, "--json"]).output.splitlines()[-1])
    assert (row["validation"], "unchecked by the contract" in row["note"]) == (None, True)


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
