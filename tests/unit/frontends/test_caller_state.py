"""A capture leaves the caller's modules, functions and inputs as they were."""

import threading

import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")
from benchmarks.caller_state import changed  # noqa: E402
from torch import nn  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.errors import CaptureError  # noqa: E402
from nearpeak.frontends.caller_state.loan import Loan  # noqa: E402

X = torch.ones(2, 4)


@pytest.mark.parametrize("number", sampled(range(24), 8))
def test_a_random_module_is_bit_for_bit_what_it_was(number):
    assert changed(7, number) == []


def test_the_comparison_sees_what_is_not_put_back(monkeypatch):
    monkeypatch.setattr(Loan, "put_back", lambda _: None)
    assert changed(7, 0)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.layer, self.lock, self.rest = nn.Linear(4, 4), threading.Lock(), (i for i in range(3))

    def forward(self, x, *, advance=False):
        with self.lock:
            self.steps.add_(1)
            return self.layer(x) * (next(self.rest) if advance else 1)


def test_a_module_with_a_lock_and_a_generator_is_captured():
    model = Counter()
    assert [call.operator for call in nearpeak.capture(model, inputs=(X,)).calls][-1] == "aten.mul.Tensor"
    assert model.steps == 0
    assert list(model.rest) == [0, 1, 2]


def test_a_generator_of_the_callers_is_not_advanced():
    model = Counter()
    with pytest.raises(CaptureError, match="hold a list instead"):
        nearpeak.capture(lambda x: model(x, advance=True), inputs=(X,))
    assert next(model.rest) == 0


def test_gradients_of_before_do_not_reach_the_step_and_stay():
    model = nn.Linear(4, 4)
    plain = nearpeak.capture(model, inputs=(X,), step="train")
    model(X).sum().backward()
    gradient, values = model.weight.grad, model.weight.grad.clone()
    again = nearpeak.capture(model, inputs=(X,), step="train")
    assert model.weight.grad is gradient
    assert torch.equal(gradient, values)
    assert [call.operator for call in again.calls] == [call.operator for call in plain.calls]


@pytest.mark.parametrize("step", ["forward", "train"])
def test_modules_on_no_device_are_captured_as_those_with_memory(step):
    def build():
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    wanted = nearpeak.capture(build(), inputs=(X,), step=step)
    with torch.device("meta"):
        model, x = build(), torch.ones(2, 4)
    assert nearpeak.capture(model, inputs=(x,), step=step).calls == wanted.calls
    assert model[0].weight.is_meta


def test_an_iterator_that_cannot_be_copied_is_not_moved():
    pairs = zip([1.0, 2.0], [3.0, 4.0], strict=True)
    with pytest.raises(CaptureError, match="hold a list instead"):
        nearpeak.capture(lambda x: x * next(pairs)[0], inputs=(X,))
    assert next(pairs) == (1.0, 3.0)


def test_a_format_that_a_step_makes_the_default_is_put_back():
    def step(x):
        torch.set_default_dtype(torch.float64)
        return x + torch.zeros(4)

    assert nearpeak.capture(step, inputs=(X,)).calls
    assert torch.get_default_dtype() == torch.float32
