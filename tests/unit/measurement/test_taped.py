"""PyTorch's calls without the Python around them: the same results from the same operators, or the call as it is."""

import itertools
import subprocess
import sys
import weakref

import numpy as np
import pytest
from tests.golden.directed import directed
from tests.sampling import sampled

from nearpeak.case_tensors.fresh_values import Varied
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.measurement.runners import runner_of
from nearpeak.ops import OPS, case

torch = pytest.importorskip("torch")
from nearpeak.measurement.machine import recorded_calls, torch_runner  # noqa: E402

ASKING = {"adafactor", "grouped_gemm", "lbfgs", "non_max_suppression", "optimizer"}
"""Operators some of whose calls look at data on the host: test_calls_stay_on_the_device.py says why."""


@pytest.fixture
def pairs(monkeypatch):
    """Each call that was prepared beside what became of it, however long it takes."""
    found = []
    monkeypatch.setattr(recorded_calls, "LONG_S", 60.0)
    monkeypatch.setattr(recorded_calls, "FIRST_S", 60.0)
    monkeypatch.setattr(
        torch_runner,
        "recorded_call",
        lambda t, run: found.append((run, recorded_calls.recorded_call(t, run))) or found[-1][1],
    )
    return found


def prepared(op, row):
    """The directed case of an operator ready to run, and its inputs; nothing where PyTorch does not compute it."""
    try:
        one = case(op, **{"dtype": "fp32", **{key: value for key, value in row.items() if key[0] != "_"}})
        backend, inputs = runner_of("torch_cpu", Timing(cache="hot")).backend, drawn(one)
        return (one, backend.prepare(one, inputs), inputs) if not backend.refusal(one) else None
    except (NearpeakError, RuntimeError, NotImplementedError, AttributeError, ValueError, TypeError, IndexError):
        return None


def results(ready, run, tensors):
    """The outputs of a call from the same seed; what it updates in place is afterwards what it was."""
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    torch.manual_seed(0)
    with torch.no_grad():
        found = {name: np.array(array) for name, array in ready.outputs(run()).items()}
        for name, tensor in kept.items():
            tensors[name].copy_(tensor)
    return found


@pytest.mark.parametrize("op", sampled(OPS, 30))
def test_every_directed_case_computes_the_same_also_where_inputs_have_changed(op, pairs):
    for row in directed(op):
        pairs.clear()
        if (made := prepared(op, row)) is None:
            continue
        one, ready, inputs = made
        run, replay = pairs[0]
        assert replay is not run or op in ASKING, one.label()
        varied = Varied(one, ready, inputs)
        for _ in range(2):
            wanted, got = (results(ready, each, run.args[0]) for each in (run, replay))
            assert wanted.keys() == got.keys()
            for name in wanted:
                np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=one.label())
            varied.change(0)


X = torch.arange(6.0).reshape(2, 3)


def in_place():
    y = X.clone()
    y[0] = 7
    y[:, torch.tensor([1])] += 1
    return {"y": torch.cat([y, X.mT.mT]), "z": X.topk(2).values.contiguous()}


def with_a_gradient_inside():
    with torch.enable_grad():
        leaf = X.clone().requires_grad_()
        y = (leaf * leaf).sum()
    return {"y": torch.autograd.grad(y, leaf)[0]}


@pytest.mark.parametrize("run", [in_place, with_a_gradient_inside, lambda: {"y": torch.split(X, [1, 2], 1)[1] + 1}])
def test_writes_lists_named_tuples_and_contexts_are_taken_down(run):
    with torch.no_grad():
        replay = recorded_calls.recorded_call(torch, run)
        assert replay is not run
        for name, wanted in run().items():
            assert torch.equal(replay()[name], wanted)
    assert torch.is_grad_enabled()


NUMBERS = itertools.count()


def counting():
    return {"y": X + next(NUMBERS)}


@pytest.mark.parametrize("run", [
    lambda: {"y": X * X.sum().item()},
    lambda: {"y": X + 1 if X.sum() > 3 else X},
    lambda: {"y": torch.from_numpy(X.numpy() + 1)},
    lambda: {"y": X[X.tolist()[0][1] > 0]},
    counting,
])  # fmt: skip
def test_calls_that_look_at_data_or_count_stay_as_they_are(run):
    assert recorded_calls.recorded_call(torch, run) is run


def test_long_calls_stay_as_they_are(monkeypatch):
    run = lambda: {"y": X + 1}  # noqa: E731
    assert recorded_calls.recorded_call(torch, run) is not run
    monkeypatch.setattr(recorded_calls, "LONG_S", 0.0)
    assert recorded_calls.recorded_call(torch, run) is run


def test_the_compiler_is_not_imported_for_it():
    text = (
        "import sys, torch; from nearpeak.measurement.machine.recorded_calls import recorded_call; x = torch.ones(2);"
        "run = lambda: {'y': x + 1}; print(recorded_call(torch, run) is not run, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_what_no_later_step_needs_is_let_go():
    made = []

    def held(*given):
        made.append((weakref.ref(result := torch.ones(2)), [ref() is not None for ref, _ in made]))
        return result

    first, second, third = torch.ones(2), torch.ones(2), torch.ones(2)
    results = (((), first), ((first,), second), ((second, first), third), ((), torch.ones(2)))
    steps = [recorded_calls._Step(function=held, args=args, kwargs={}, result=result) for args, result in results]
    replay = recorded_calls._compiled(torch, steps, {"y": third})
    made.clear()
    assert torch.equal(replay()["y"], third)
    assert [alive for _, alive in made] == [[], [True], [True, True], [False, False, True]]
