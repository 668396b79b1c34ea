"""Steps of Adam and its like whose corrections are computed in fp32, as within CUDA graphs, are right."""

import pytest

import nearpeak
from nearpeak.validation import validate

torch = pytest.importorskip("torch")

STEP = 10


def radam(power):
    def call(tensors, **_):
        p, g, m, v = (tensors[name].clone() for name in "pgmv")
        m, v = torch.lerp(m, g, 0.1), 0.999 * v + (1 - 0.999) * g * g
        first, second = power(0.9), power(0.999)
        most = 2 / (1 - 0.999) - 1
        length = most - 2 * STEP * second / (1 - second)
        rate = ((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) ** 0.5
        p = p - 0.01 * rate * (1 - second) ** 0.5 / (1 - first) * m / (v.sqrt() + 1e-8)
        return {"p": p, "m": m, "v": v}

    return call


def adam(power):
    def call(tensors, **_):
        p, g, m, v = (tensors[name].clone() for name in ("parameter", "grad", "moment", "square"))
        m, v = torch.lerp(m, g, 0.1), 0.999 * v + (1 - 0.999) * g * g
        p = p - 1e-3 / (1 - power(0.9)) * m / (v.sqrt() / (1 - power(0.999)) ** 0.5 + 1e-8)
        return {"parameter": p, "moment": m, "square": v}

    return call


CASES = [
    (radam, STEP, nearpeak.case("optimizer", parameters=999, rule="radam", dtype="fp32")),
    (adam, 1, nearpeak.case("adamw", parameters=999, decay="none", dtype="fp32")),
]


@pytest.mark.parametrize(("step_of", "number", "case"), CASES, ids=["radam", "adam"])
def test_corrections_in_fp32_are_as_right_as_those_in_fp64(step_of, number, case):
    def in_fp32(beta):
        return torch.tensor(beta) ** number

    for power in (in_fp32, lambda beta: beta**number):
        assert not [one for one in validate(case, step_of(power), seed=7).results if one.failed]


@pytest.mark.parametrize(("step_of", "number", "case"), CASES, ids=["radam", "adam"])
def test_a_correction_of_another_step_is_refused(step_of, number, case):
    found = validate(case, step_of(lambda beta: beta ** (number + 1)), seed=7)
    assert "V5" in {one.check for one in found.results if one.failed}
