"""Timed outputs are verified again: what is right when checked and wrong when timed has no time."""

import dataclasses

import numpy as np
import pytest

import nearpeak
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.measurement.large_cases.timed_output_check import timed_result
from nearpeak.measurement.runners import runner_of
from nearpeak.measurement.runners.callable import UserCallable
from nearpeak.measurement.timed_runner import TimedRunner
from nearpeak.ops import OPS

torch = pytest.importorskip("torch")
TIMING = Timing(budget_s=0.0, flush_bytes=0, cache="hot")
SOFTMAX = nearpeak.case("softmax", rows=8, columns=33, dtype="fp32")


def v11(found):
    return next(one for one in found.validation.results if one.check == "V11")


def test_a_function_that_is_wrong_after_many_calls_is_incorrect():
    calls = []

    def tired(tensors, **arguments):
        calls.append(1)
        y = OPS["softmax"].torch_call(tensors, **arguments)["y"]
        return {"y": y if len(calls) < 60 else y * 0.9}

    found = TimedRunner(UserCallable.of(tired, TIMING), TIMING).measure(SOFTMAX)
    assert found.outcome is Outcome.INCORRECT
    assert not found.samples_s
    assert "a timed call" in found.note
    assert found.validation.command.startswith("nearpeak measure softmax")


@pytest.mark.parametrize("runner", ["torch_cpu", "onnxruntime"])
@pytest.mark.parametrize(
    "case",
    [
        SOFTMAX,
        nearpeak.case("softmax", "backward", rows=8, columns=33, dtype="bf16"),
        nearpeak.case("topk", rows=4, columns=300, k=9, dtype="fp32"),
        nearpeak.case("embedding", tokens=60, vocab=50, dim=8, dtype="fp32"),
        nearpeak.case("gemm", m=8, n=9, k=33, dtype="fp32"),
    ],
    ids=lambda case: f"{case.op}-{case.phase}",
)
def test_the_outputs_of_a_timed_call_are_compared_with_the_oracle(runner, case):
    if runner == "onnxruntime":
        pytest.importorskip("onnxruntime")
        if case.phase == "backward":
            return
    found = runner_of(runner, TIMING).measure(case)
    assert found.samples_s, found.note
    assert v11(found).status == "PASS"
    assert v11(found).worst is not None


def test_a_gradient_that_is_timed_is_judged_by_what_came_from_above():
    case = nearpeak.case("softmax", "backward", rows=3, columns=5, dtype="fp64")
    (inputs,) = drawn(case)
    above = {"grad_y": np.arange(15.0).reshape(3, 5)}
    y = np.exp(inputs["x"]) / np.exp(inputs["x"]).sum(-1, keepdims=True)
    right = y * (above["grad_y"] - (above["grad_y"] * y).sum(-1, keepdims=True))
    assert timed_result(case, inputs, {"grad_x": right}, above).status == "PASS"
    assert timed_result(case, inputs, {"grad_x": right * 1.5}, above).status == "NUMERIC_FAIL"
    assert timed_result(case, inputs, {"grad_x": right}, None) is None


def test_what_is_updated_in_place_is_left_to_the_loop_of_the_contract():
    found = runner_of("torch_cpu", TIMING).measure(nearpeak.case("adamw", parameters=30, dtype="fp32"))
    assert found.samples_s, found.note
    assert v11(found).status == "PASS"


def test_a_case_that_cannot_tell_right_from_wrong_still_has_a_time():
    found = runner_of("torch_cpu", TIMING).measure(nearpeak.case("softmax", rows=2, columns=1, dtype="fp32"))
    assert found.samples_s
    assert found.validation.status == "DEGENERATE_CASE"


def test_any_sample_may_be_the_one_that_is_kept():
    from nearpeak.measurement.timing.sampler import _Keeper

    runs = (lambda: 0, lambda: 1)
    prepared = Prepared(runs=runs, outputs=lambda result: {"y": np.array([result])})
    kept = set()
    for _ in range(200):
        keeper = _Keeper(prepared)
        for number in range(5):
            keeper.offer(runs[number % 2], number)
        kept.add((keeper.seen[0], int(keeper.seen[1]["y"][0])))
    assert kept == {(number % 2, number) for number in range(5)}


def test_indices_lie_in_their_range_and_as_many_differ_as_the_case_says():
    case = nearpeak.case("gather", rows=400, width=3, table_rows=70, touched_rows=11, dtype="fp32")
    index = drawn(case)[0]["index"]
    assert 0 <= index.min() < index.max() < 70
    assert len(np.unique(index)) == 11
    target = drawn(nearpeak.case("cross_entropy", rows=500, classes=9, dtype="fp32"))[0]["target"]
    assert set(target.tolist()) == set(range(9))
    mask = drawn(nearpeak.case("masked_select", elements=50, found=20, dtype="fp32"))[0]["mask"]
    assert mask.sum() == 20
    assert np.count_nonzero(drawn(nearpeak.case("nonzero", elements=50, found=20, dtype="fp32"))[0]["x"]) == 20
    many = drawn(nearpeak.case("unique", elements=4000, found=3000, dtype="fp32"))[0]["x"]
    assert (len(np.unique(many)), many.min() >= 0) == (3000, True)
    assert (drawn(nearpeak.case("batch_norm", batch=2, channels=3, spatial=4, train=False, dtype="fp32"))[0]
            ["running_var"] > 0).all()  # fmt: skip


def test_the_record_of_a_runner_names_it_so_that_its_command_repeats_it():
    found = runner_of("torch_cpu", TIMING).measure(SOFTMAX)
    assert found.validation.implementation == "torch_cpu"
    assert "--runner torch_cpu" in found.validation.command
    assert dataclasses.asdict(found.validation.results[12])["status"] == "SKIPPED"


def test_a_timed_quantisation_by_the_reciprocal_of_the_largest_number_is_right():
    case = nearpeak.case("quantise", rows=5, columns=7, dtype="fp32")
    (inputs,) = drawn(case)
    amax = np.abs(inputs["x"]).max()
    scale = np.float32(amax * np.float32(1 / 448))
    q = torch.as_tensor(inputs["x"] / scale).to(torch.float8_e4m3fn).float().numpy()
    assert scale != np.float32(amax / np.float32(448))
    outputs = {"q": q, "scale": np.array([scale])}
    assert timed_result(case, inputs, outputs, None).status == "PASS"
    assert timed_result(case, inputs, {**outputs, "q": q * 2}, None).failed
    assert timed_result(case, inputs, {**outputs, "scale": np.array([scale * 1.001])}, None).failed


def test_what_is_written_twice_in_one_place_is_compared_with_nothing():
    case = nearpeak.case("max_unpool", planes=3, inputs=4, outputs=10, dtype="fp32")
    (inputs,) = drawn(case)
    assert all(len(set(row)) == 4 for row in inputs["index"].tolist())
    wrong = {"y": np.full((3, 10), 5.0, np.float32)}
    assert timed_result(case, inputs, wrong, None).failed
    assert timed_result(case, {**inputs, "index": np.zeros_like(inputs["index"])}, wrong, None) is None
