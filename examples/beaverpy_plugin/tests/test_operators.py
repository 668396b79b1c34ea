"""The adapter of public NumPy operators: a right package passes every probe, each defect is named."""

import types

import numpy as np
import pytest
from nearpeak_beaverpy.operators import OPERATORS, PROBES, divergences, implementation, installed

import nearpeak
from nearpeak.errors import MissingExtraError, NotModelledError
from nearpeak.validation import validate

pytest.importorskip("torch")
import numpy_package as right


def names(package, *operators):
    return {(divergence.operator, divergence.name) for divergence in divergences(package, operators or OPERATORS)}


def broken(operator, **methods):
    """The right package with methods of one operator replaced."""
    package = types.SimpleNamespace(**{name: getattr(right, name) for name in OPERATORS})
    setattr(package, operator, type(operator, (getattr(right, operator),), methods))
    return package


def changed(operator, change):
    """The right package with the answers of one operator changed."""
    forward = getattr(right, operator).forward
    return broken(operator, forward=lambda self, *arrays: change(*arrays, forward(self, *arrays)))


def test_a_right_package_has_no_divergence():
    assert names(right) == set()


def test_probes_have_names_of_their_own_for_all_eight_operators():
    assert len({(probe.operator, probe.name) for probe in PROBES}) == len(PROBES) >= 15
    assert {probe.operator for probe in PROBES} == set(OPERATORS)


def early(x, y):
    """Softmax without the maximum subtracted."""
    del y
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


DEFECTS = {
    ("Softmax", "large inputs overflow"): ("Softmax", early),
    ("Softmax", "very negative inputs give NaN"): ("Softmax", early),
    ("Softmax", "fp16 overflows"): ("Softmax", early),
    ("Softmax", "dim=None means the last"): ("Softmax", early),
    ("Sigmoid", "fp16 underflows"): ("Sigmoid", lambda x, y: 1 / (1 + np.exp(-x))),
    ("Sigmoid", "integers become float64"): ("Sigmoid", lambda x, y: 1 / (1 + np.exp(-x))),
    ("Sigmoid", "overflow warning"): ("Sigmoid", lambda x, y: 1 / (1 + np.exp(-x))),
    ("ReLU", "inplace ignored"): ("ReLU", lambda x, y: x.__setitem__(..., -x)),
    ("CosineSimilarity", "zero vector gives NaN"): (
        "CosineSimilarity", lambda a, b, y: (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)),
    ),
    ("CosineSimilarity", "eps ignored"): (
        "CosineSimilarity", lambda a, b, y: (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)),
    ),
    ("MSELoss", "reduce ignored"): ("MSELoss", lambda a, b, y: np.mean(y)),
    ("MSELoss", "size_average ignored"): ("MSELoss", lambda a, b, y: ((a - b) ** 2).mean()),
    ("Linear", "other random weights in every call"): ("Linear", lambda x, *rest: rest[-1] + np.random.rand()),
    ("Linear", "float32 becomes float64"): ("Linear", lambda x, *rest: rest[-1].astype(np.float64)),
    ("MaxPool2D", "NaN ignored"): ("MaxPool2D", lambda x, y: np.nan_to_num(y) if isinstance(y, np.ndarray) else y),
    ("MaxPool2D", "float32 becomes float64"): (
        "MaxPool2D", lambda x, y: y.astype(np.float64) if isinstance(y, np.ndarray) else y,
    ),
    ("MaxPool2D", "index of a window of -inf"): (
        "MaxPool2D", lambda x, y: (y[0], y[1] * np.isfinite(y[0])) if isinstance(y, tuple) else y,
    ),
    ("Conv2D", "float32 becomes float64"): ("Conv2D", lambda x, *rest: rest[-1].astype(np.float64)),
    ("Conv2D", "other random kernels in every call"): (
        "Conv2D", lambda x, *rest: rest[-1] + (len(rest) == 1) * np.random.rand(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=" ".join)
def test_each_defect_is_found_under_its_name(defect):
    operator, change = DEFECTS[defect]
    assert defect in names(changed(operator, change), operator)


def test_what_takes_other_positions_is_found():
    def stride_last(self, kernel, padding=0, stride=1, **options):
        right.MaxPool2D.__init__(self, kernel, padding=padding, stride=stride, **options)

    defects = names(broken("MaxPool2D", __init__=stride_last), "MaxPool2D")
    assert {("MaxPool2D", "default stride is 1"), ("MaxPool2D", "padding precedes stride")} <= defects


def test_an_object_that_a_call_changes_is_found():
    def growing(self, x, kernels=None):
        answer = right.Conv2D.forward(self, x, kernels)
        self.layer.dilation = tuple(1 + d for d in self.layer.dilation)
        return answer

    assert ("Conv2D", "second forward of a dilated one") in names(broken("Conv2D", forward=growing), "Conv2D")


@pytest.mark.parametrize(
    "case",
    [
        nearpeak.case("softmax", rows=4, columns=9, dtype="fp32"),
        nearpeak.case("gemm", m=4, n=5, k=6, bias=True, dtype="fp64"),
        nearpeak.case("elementwise", elements=9, function="sigmoid", dtype="fp32"),
        nearpeak.case("pointwise_loss", elements=12, function="mse", dtype="fp32"),
    ],
    ids=lambda case: case.op,
)
def test_its_operators_run_as_implementations_of_cases(case):
    assert validate(case, implementation(case, right), seed=1).status == "PASS"


def test_a_case_without_an_operator_of_the_package_is_refused():
    with pytest.raises(NotModelledError, match="no operator for layer_norm"):
        implementation(nearpeak.case("layer_norm", rows=2, hidden=3, dtype="fp32"), right)
    with pytest.raises(NotModelledError, match="log=true"):
        implementation(nearpeak.case("softmax", rows=2, columns=3, log=True, dtype="fp32"), right)


def test_the_public_package_has_every_divergence_or_is_not_installed():
    try:
        package = installed()
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert names(package) == {(probe.operator, probe.name) for probe in PROBES}
