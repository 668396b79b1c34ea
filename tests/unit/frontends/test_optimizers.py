"""Every optimizer step of PyTorch is covered and moves each parameter, gradient and state once, however it is run."""

import dataclasses
import inspect
import itertools

import pytest
import torch
from tests.sampling import in_turn, long

from nearpeak.bounds.step.compulsory_work import compulsory
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.frontends.torch.optimizers import OPTIMIZERS
from nearpeak.ops import work_of

WEIGHTS, TENSORS = 16 * 32 + 32 + 32 * 8 + 8, 4
"""Elements of all parameters of `model`, and their number."""


def model():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def step(optimizer, dtype="fp32", fused=True):
    """The optimizer's calls of a captured training step, gradients given from outside, and their least work."""
    inputs = lambda: ((torch.empty(4, 16),), {})  # noqa: E731
    workload = capture_torch(
        model, inputs, CaptureOptions(step="train", dtype=dtype), name="m", optimizer=optimizer, fused=fused
    )
    calls = tuple(call for call in workload.calls if call.phase == "optimizer")
    given = tuple(dataclasses.replace(b, kind="input") if b.kind == "gradient" else b for b in workload.buffers)
    alone = dataclasses.replace(workload, calls=calls, buffers=given)
    assert alone.uncovered_counts() == {}
    return calls, compulsory(alone, [work_of(call.case) for call in calls])


# States of a parameter, and numbers beside them that each tensor keeps: read and written.
STATES = [
    ("SGD", {"lr": 0.1}, 0, (0, 0)),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, 1, (0, 0)),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, 1, (0, 0)),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}, 1, (0, 0)),
    ("Adam", {}, 2, (1, 1)), ("Adam", {"amsgrad": True}, 3, (1, 1)), ("AdamW", {}, 2, (1, 1)),
    ("AdamW", {"amsgrad": True, "maximize": True}, 3, (1, 1)), ("Adagrad", {}, 1, (1, 1)),
    ("RMSprop", {}, 1, (1, 1)), ("RMSprop", {"momentum": 0.9, "centered": True}, 3, (1, 1)),
    ("Adadelta", {}, 2, (1, 1)), ("NAdam", {}, 2, (2, 2)), ("RAdam", {}, 2, (1, 1)), ("Adamax", {}, 2, (1, 1)),
    ("Rprop", {}, 2, (1, 1)),
]  # fmt: skip
WAYS = ({"foreach": False}, {"foreach": True}, {"fused": True})


def ways():
    for name, options, states, numbers in STATES:
        for way in WAYS:
            if set(way) <= set(inspect.signature(getattr(torch.optim, name)).parameters):
                yield name, options | way, states, numbers


def one_way_each():
    """Of each optimizer and its states one way, in turn, in which it is run; others are `long`."""
    by_states = itertools.groupby(ways(), lambda one: (one[0], one[2]))
    for turn, (_, group) in enumerate(by_states):
        ran = list(group)
        for place, one in enumerate(ran):
            yield one if place == turn % len(ran) else long(*one)


@pytest.mark.parametrize(("name", "options", "states", "numbers"), one_way_each())
def test_a_step_moves_parameters_gradients_and_states_once(name, options, states, numbers):
    _, work = step(lambda parameters: getattr(torch.optim, name)(parameters, **options))
    assert work.read_bytes == 4 * (WEIGHTS * (2 + states) + TENSORS * numbers[0])
    assert work.write_bytes == 4 * (WEIGHTS * (1 + states) + TENSORS * numbers[1])


@pytest.mark.parametrize(("name", "fused"), in_turn(OPTIMIZERS[:-1], [True, False]))
def test_every_optimizer_can_be_named(name, fused):
    calls, work = step(name, fused=fused)
    assert calls
    assert work.write_bytes >= 4 * WEIGHTS


@pytest.mark.parametrize("options", WAYS)
def test_states_of_bf16_parameters_are_bf16(options):
    _, work = step(lambda parameters: torch.optim.AdamW(parameters, **options), dtype="bf16")
    assert work.read_bytes == 2 * 4 * WEIGHTS + 4 * TENSORS
    assert work.write_bytes == 2 * 3 * WEIGHTS + 4 * TENSORS


def test_adafactor_keeps_a_number_per_row_and_column():
    _, work = step("adafactor")
    states = (32 + 16) + 32 + (8 + 32) + 8
    assert work.read_bytes == 4 * (2 * WEIGHTS + states + TENSORS)
    assert work.write_bytes == 4 * (WEIGHTS + states + TENSORS)


def test_muon_takes_the_matrices_and_adamw_the_rest():
    calls, work = step("muon")
    matrices, vectors = 16 * 32 + 32 * 8, 32 + 8
    assert work.read_bytes == 4 * (3 * matrices + 4 * vectors + 2)
    assert work.write_bytes == 4 * (2 * matrices + 3 * vectors + 2)
    products = [call.case for call in calls if call.case.op == "gemm"]
    assert len(products) == 2 * 5 * 3  # two matrices, five iterations of three products


class Lion:
    """Written as its paper says, on one momentum per parameter."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.state = {p: {"momentum": torch.zeros_like(p)} for p in parameters}

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            momentum = self.state[p]["momentum"]
            p.mul_(0.999).add_(torch.lerp(momentum, p.grad, 0.1).sign_(), alpha=-0.01)
            momentum.lerp_(p.grad, 0.01)


def test_an_optimizer_of_ones_own_is_captured():
    _, work = step(Lion)
    assert (work.read_bytes, work.write_bytes) == (4 * 3 * WEIGHTS, 4 * 2 * WEIGHTS)


class Wrapped:
    """AdamW with something done to gradients or weights beside its step."""

    def __init__(self, parameters, around):
        self.parameters, self.inner = parameters, torch.optim.AdamW(parameters, fused=True)
        self.state, self.around = self.inner.state, around
        self.kept = [torch.zeros_like(p) for p in parameters]

    def step(self):
        self.around(self)
        self.inner.step()


def clipped(made):
    torch.nn.utils.clip_grad_norm_(made.parameters, 1.0)


def unscaled(made):
    scale, found = torch.ones(()), torch.zeros(())
    torch._amp_foreach_non_finite_check_and_unscale_([p.grad for p in made.parameters], found, scale)
    torch._amp_update_scale_(scale, torch.zeros((), dtype=torch.int32), found, 2.0, 0.5, 2000)


def averaged(made):
    with torch.no_grad():
        torch._foreach_lerp_(made.kept, list(made.parameters), 0.1)


@pytest.mark.parametrize(("around", "read", "written"), [(clipped, 4, 4), (unscaled, 4, 4), (averaged, 5, 4)])
def test_clipping_scaling_and_averaging_are_covered_and_read_nothing_twice(around, read, written):
    _, work = step(lambda parameters: Wrapped(parameters, around))
    assert 0 <= work.read_bytes - 4 * read * WEIGHTS <= 64
    assert 0 <= work.write_bytes - 4 * written * WEIGHTS <= 64


class Lbfgs:
    """PyTorch's, with the loss of the step that is captured."""

    def __init__(self, parameters):
        self.inner = torch.optim.LBFGS(parameters, max_iter=1)

    def step(self):
        self.inner.step(lambda: torch.zeros(()))


def test_lbfgs_is_covered_when_it_is_given_the_loss():
    calls, work = step(Lbfgs)
    assert calls
    assert work.read_bytes >= 4 * 2 * WEIGHTS
