"""Steps of optimizers whose states are 0, as before the first one: what is added before a division shows there."""

import pytest

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import validate

torch = pytest.importorskip("torch")


def adam(tensors, *, epsilon=1e-8, **_):
    p, g, m, v = (tensors[name].clone().float() for name in ("parameter", "grad", "moment", "square"))
    m, v = torch.lerp(m, g, 0.1), 0.999 * v + (1 - 0.999) * g * g
    p = p - 1e-3 / (1 - 0.9) * m / (v.sqrt() / (1 - 0.999) ** 0.5 + epsilon)
    return {name: one.half() for name, one in {"parameter": p, "moment": m, "square": v}.items()}


def adadelta(tensors, *, outside=False, **_):
    p, g, v, u = (tensors[name].clone().float() for name in "pgvu")
    v = 0.9 * v + (1 - 0.9) * g * g
    size = u.sqrt() + 1e-6 if outside else (u + 1e-6).sqrt()
    d = size / (v + 1e-6).sqrt() * g
    return {name: one.half() for name, one in {"p": p - 0.01 * d, "v": v, "u": 0.9 * u + (1 - 0.9) * d * d}.items()}


CASES = [
    (adam, {"epsilon": 0.0}, nearpeak.case("adamw", parameters=99, decay="none", dtype="fp16")),
    (adadelta, {"outside": True}, nearpeak.case("optimizer", parameters=1, rule="adadelta", dtype="fp16")),
]
NAMES = ["adam without epsilon", "adadelta's epsilon beside the root"]


def failed(case, call):
    return {one.check for one in validate(case, call, seed=7).results if one.failed}


@pytest.mark.parametrize(("step", "mistake", "case"), CASES, ids=NAMES)
def test_what_shows_where_states_are_zero_is_found_in_fp16(step, mistake, case):
    assert not failed(case, step)
    assert "V7" in failed(case, lambda tensors, **given: step(tensors, **(given | mistake)))


@pytest.mark.parametrize("op", ["adafactor", "adamw", "muon", "optimizer", "sgd"])
def test_every_optimizer_with_states_is_asked_for_its_first_step(op):
    numerics = OPS[op].tolerance
    assert numerics.states
    assert "first_step" in numerics.rounds
