"""Inputs that change between samples: what was kept of an earlier call is stale, and what computes is right."""

import numpy as np
import pytest

import nearpeak
from nearpeak.case_tensors.fresh_values import Varied, variable_inputs
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement.large_cases.timed_output_check import timed_result
from nearpeak.measurement.runners import backend_of
from nearpeak.measurement.runners.callable import UserCallable
from nearpeak.measurement.timed_runner import TimedRunner
from nearpeak.measurement.timing.sampler import caching_suspicion

pytest.importorskip("torch")
CASE = nearpeak.case("softmax", rows=16, columns=32, dtype="fp32")


def softmax(arrays):
    with np.errstate(all="ignore"):
        return right_or_nan(arrays)


def right_or_nan(arrays):
    e = np.exp(arrays["x"] - arrays["x"].max(-1, keepdims=True))
    return {"y": e / e.sum(-1, keepdims=True)}


class Kept:
    """Answers by what the inputs' key was given before."""

    arrays = "numpy"
    __module__, __qualname__ = "kept", "Kept"

    def __init__(self, key):
        self.key, self.answers, self.computed_count = key, {}, 0

    def __call__(self, arrays, **_):
        key = self.key(arrays["x"])
        if key not in self.answers:
            self.computed_count += 1
            self.answers[key] = softmax(arrays)
        return self.answers[key]


def taken(function, cache):
    timing = Timing(budget_s=0.2, flush_bytes=0, cache=cache, least_count=40)
    return TimedRunner(UserCallable.of(function, timing), timing).measure(CASE)


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_an_answer_kept_by_the_values_of_inputs_is_computed_anew_for_each_sample(cache):
    kept = Kept(lambda x: x.tobytes())
    found = taken(kept, cache)
    assert found.outcome is not Outcome.INCORRECT, found.note
    assert kept.computed_count > 40


def _odd(x):
    """Count what is not finite: V4 would see that it is answered as other inputs are, before samples are taken."""
    return int(np.isnan(x).sum()), int(np.isinf(x).sum())


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_an_answer_kept_by_anything_less_is_incorrect(cache):
    def key(x):
        return (x.shape, x.ctypes.data, float(x.flat[0]), float(x.flat[-1]), *_odd(x))

    tries = (taken(Kept(key), cache) for _ in range(3))  # one changed element may leave the one kept answer right
    found = next(tried for tried in tries if tried.outcome is Outcome.INCORRECT)
    assert found.samples_s == ()
    assert "V11" in found.note


def test_calls_that_are_faster_on_inputs_seen_before_are_told_from_those_that_compute():
    class Clock:
        def __init__(self, seen_s):
            self.seen_s, self.anew = seen_s, True

        def read(self, run, call_count):
            first_s, self.anew = (1e-3 if self.anew else self.seen_s), False
            time_s = first_s + (call_count - 1) * self.seen_s
            return type("Reading", (), {"time_s": time_s})

    for seen_s, said in ((1e-6, "where its inputs have changed"), (5e-4, "have changed"), (9e-4, "")):
        clock = Clock(seen_s)

        def change(run, clock=clock):
            clock.anew = True

        assert said in caching_suspicion(clock, iter(lambda: run_nothing, 0), 100, change)
        assert bool(caching_suspicion(clock, iter(lambda: run_nothing, 0), 100, change)) == bool(said)


def run_nothing():
    return None


@pytest.mark.parametrize("case", [
    nearpeak.case("gemm", m=9, n=7, k=32, dtype="bf16"), CASE,
    nearpeak.case("gemm", m=9, n=7, k=32, dtype="fp16", **{"a.layout": "transposed"}),
    nearpeak.case("embedding", tokens=40, vocab=11, dim=6, dtype="fp32"),
    nearpeak.case("topk", rows=3, columns=40, k=4, dtype="fp32"),
])  # fmt: skip
@pytest.mark.parametrize("runner", ["torch_cpu"])
def test_what_computes_is_right_after_any_number_of_changes(case, runner):
    backend, inputs = backend_of(runner), drawn(case)
    before = {name: np.array(one) for name, one in inputs[0].items()}
    prepared = backend.prepare(case, inputs)
    varied = Varied(case, prepared, inputs)
    states = []
    for _ in range(100):
        varied.change(0)
        states.append(varied.state())
    assert any((inputs[0][name] != one).any() for name, one in before.items())
    assert timed_result(case, inputs[0], prepared.outputs(prepared.runs[0]()), None).failed is False
    varied.restore({})
    assert all(np.array_equal(inputs[0][name], one) for name, one in before.items())
    varied.restore(states[50])
    assert timed_result(case, inputs[0], prepared.outputs(prepared.runs[0]()), None).failed is False


def test_what_is_tied_together_stays_as_it_is():
    assert variable_inputs(nearpeak.case("nonzero", elements=9, found=4, dtype="fp32")) == ()
    assert variable_inputs(nearpeak.case("softmax", "backward", rows=4, columns=8, dtype="fp32")) == ()


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_gradient_follows_what_comes_from_above_as_it_changes(dtype):
    case = nearpeak.case("softmax", "backward", rows=4, columns=8, dtype=dtype)
    backend, inputs = backend_of("torch_cpu"), drawn(case)
    prepared = backend.prepare(case, inputs)
    varied, before = Varied(case, prepared, inputs), np.array(prepared.upstream[0]["grad_y"])
    first = {name: np.array(one) for name, one in prepared.outputs(prepared.runs[0]()).items()}
    for _ in range(50):
        varied.change(0)
    assert (prepared.upstream[0]["grad_y"] != before).any()
    now = {name: np.array(one) for name, one in prepared.outputs(prepared.runs[0]()).items()}
    assert timed_result(case, inputs[0], now, prepared.upstream[0]).status == "PASS"
    assert timed_result(case, inputs[0], first, prepared.upstream[0]).status == "NUMERIC_FAIL"


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_a_gradient_that_is_kept_from_an_earlier_call_is_incorrect(cache):
    import torch

    case = nearpeak.case("softmax", "backward", rows=16, columns=32, dtype="fp32")

    class Softmax(torch.autograd.Function):
        kept, calls = [], 0

        @staticmethod
        def forward(context, x):
            y = torch.softmax(x, -1)
            context.save_for_backward(y)
            return y

        @staticmethod
        def backward(context, above):
            Softmax.calls += 1
            (y,) = context.saved_tensors
            right = y * (above - (above * y).sum(-1, keepdim=True))
            if Softmax.calls > 30 and not Softmax.kept:  # when the contract has seen enough
                Softmax.kept.append(right)
            return Softmax.kept[0] if Softmax.kept and Softmax.kept[0].shape == right.shape else right

    timing = Timing(budget_s=0.02, flush_bytes=0, cache=cache, least_count=40, validate=True)
    backend = UserCallable.of(lambda tensors, **_: {"y": Softmax.apply(tensors["x"])}, timing)
    found = TimedRunner(backend, timing).measure(case)
    assert (found.outcome, found.samples_s) == (Outcome.INCORRECT, ())


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp64", "fp32"])
def test_a_changed_element_is_rounded_as_the_others_were(dtype):
    import torch

    from nearpeak.measurement.machine.torch_runner import _written

    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64, "fp32": torch.float32}[dtype]
    array = np.random.default_rng(5).standard_normal((40, 50)).astype(np.float64 if dtype == "fp64" else np.float32)
    tensor = torch.zeros(array.shape, dtype=kind)
    write = _written(torch, tensor, array)
    for at in range(array.size):
        write(at)
    assert torch.equal(tensor, torch.from_numpy(array).to(kind))
