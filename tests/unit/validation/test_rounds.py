"""Which inputs a case is judged on, and what an answer may be where several are right."""

import numpy as np
import pytest

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate
from nearpeak.validation.comparison.output_comparison import compared
from nearpeak.validation.comparison.torch_baseline import as_good, margin
from nearpeak.validation.inputs.distributions import ALWAYS
from nearpeak.validation.inputs.rounds import _shown, obligations_of, rounds_of
from nearpeak.validation.mutants import killed_by, mutants_of
from nearpeak.validation.mutants.legitimate_variants import variants_of
from nearpeak.validation.oracle.expected_results import Expected

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("function", ["max", "argmin", "min_max"])
def test_every_part_of_what_is_selected_from_matters_in_some_round(function):
    case = nearpeak.case("reduce", outputs=3, reduced=11, function=function, dtype="bf16")
    asked = rounds_of(case, 4)
    wanted = obligations_of(asked[0])
    shown = set().union(*(_shown(one, wanted) for one in asked))
    assert {part for part in wanted - shown if part[0] == "x" and part[1][0] == 1} == set()


def test_a_smooth_case_needs_no_further_rounds():
    found = rounds_of(nearpeak.case("gemm", m=4, n=4, k=8, dtype="fp32"), 0)
    assert [one.distribution for one in found] == [*ALWAYS, "beyond"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("op", "more"), [("topk", {"k": 20}), ("kthvalue", {"k": 7}), ("mode", {})])
def test_any_of_equal_values_may_be_named(op, more, dtype):
    case = nearpeak.case(op, rows=4, columns=1000, dtype=dtype, **more)
    assert validate(case, pytorch(case), seed=3).status == "PASS"


def test_a_position_of_another_value_or_one_that_is_named_twice_is_wrong():
    case = nearpeak.case("topk", rows=4, columns=50, k=5, dtype="fp32")

    def wrong(change):
        def call(tensors, **arguments):
            found = OPS["topk"].torch_call(tensors, **arguments)
            return {**found, "indices": change(found["indices"].clone())}

        return validate(case, call, seed=3).status

    assert wrong(lambda index: (index + 1) % 50) == "NUMERIC_FAIL"
    assert wrong(lambda index: index.index_copy(1, torch.tensor([1]), index[:, :1])) == "NUMERIC_FAIL"


@pytest.mark.parametrize(
    ("op", "axes", "row"),
    [
        ("max_pool", {"batch": 1, "channels": 2, "w": 9, "kw": 3, "pw": 1}, "padding off by one pw"),
        ("conv", {"batch": 1, "in_channels": 3, "out_channels": 2, "w": 9, "kw": 3}, "dilation off by one dw"),
        ("cross_entropy", {"rows": 9, "classes": 7, "reduction": "mean"}, "mean over ignored rows too"),
        ("cross_entropy", {"rows": 9, "classes": 7, "reduction": "sum"}, "ignore mask dropped"),
        ("gemm", {"m": 5, "n": 6, "k": 32}, "inputs in TF32"),
        ("varlen_attention", {"tokens": 12, "heads": 2, "dim": 8, "sequences": 2}, "no maximum subtracted"),
        ("scan", {"rows": 3, "length": 9, "function": "logsumexp"}, "no maximum subtracted"),
        ("batch_norm", {"batch": 3, "channels": 4, "spatial": 5, "train": True}, "variance by n - 1"),
        ("optimizer", {"parameters": 9, "rule": "rmsprop"}, "epsilon inside the root"),
        ("reduce", {"outputs": 3, "reduced": 9, "function": "var"}, "biased variance"),
    ],
)  # fmt: skip
def test_mistakes_of_the_list_are_made_wherever_they_apply_and_killed(op, axes, row):
    case = nearpeak.case(op, **axes, dtype="fp32")
    found = {mutant.name: mutant for mutant in mutants_of(case)}
    assert row in found, sorted(found)
    assert killed_by(case, found[row].implementation(), seed=2)


@pytest.mark.parametrize(("op", "axes", "row"), [
    ("elementwise", {"elements": 16, "b": 4, "function": "floor_divide", "dtype": "fp16"}, "bits lost y"),
    ("elementwise", {"elements": 5, "function": "floor", "dtype": "bf16"}, "bits lost y"),
    ("elementwise", {"elements": 5, "function": "trunc_divide", "dtype": "fp64"}, "bits lost y"),
    ("optimizer", {"parameters": 9, "rule": "adadelta", "dtype": "bf16"}, "epsilon inside the root"),
    ("optimizer", {"parameters": 9, "rule": "adadelta", "dtype": "fp16"}, "epsilon inside the root"),
    ("quantise", {"rows": 12, "columns": 32, "history": 3, "scaling": "delayed", "dtype": "bf16"},
     "last slice dropped history[0]"),
    ("quantise", {"rows": 5, "columns": 7, "dtype": "fp32"}, "gradient zero"),
    ("cast", {"elements": 9, "dtype": "fp32", "out_dtype": "fp8_e4m3"}, "computed in fewer bits"),
    ("fake_quantise", {"channels": 1, "columns": 5, "learnable": True, "dtype": "fp64", "scale_dtype": "fp64"},
     "operand ignored zero"),
    ("rms_norm", {"rows": 2, "hidden": 1, "affine": False, "dtype": "bf16"}, "gradient zero"),
    ("histogram", {"elements": 1, "bins": 31, "dtype": "fp64"}, "columns swapped y"),
    ("histogram", {"elements": 1, "bins": 1, "dtype": "fp32"}, "computed in fewer bits"),
    ("histogram", {"elements": 1, "bins": 2, "dtype": "fp64"}, "computed in fewer bits"),
    ("pq_search", {"queries": 3, "vectors": 64, "dim": 4, "parts": 4, "k": 4, "dtype": "fp16"},
     "last slice dropped codebooks[1]"),
])  # fmt: skip
def test_inputs_of_unlike_sizes_show_what_sizes_of_one_kind_hide(op, axes, row):
    case = nearpeak.case(op, **axes)
    found = {mutant.name: mutant for mutant in mutants_of(case)}
    assert killed_by(case, found[row].implementation(), seed=1)


@pytest.mark.parametrize(("op", "axes"), [
    ("quantise", {"rows": 32, "columns": 7, "dtype": "fp64"}),
    ("linalg", {"batch": 2, "n": 33, "function": "determinant", "dtype": "fp64"}),
    ("lbfgs", {"parameters": 65, "history": 127, "dtype": "bf16"}),
    ("lbfgs", {"parameters": 1, "history": 4, "dtype": "fp16"}),
    ("recurrent", {"batch": 2, "steps": 3, "features": 1024, "hidden": 16, "cell": "lstm", "state": True,
                   "dtype": "fp16"}),
    ("linear_cross_entropy", {"rows": 7, "hidden": 200, "classes": 65, "reduction": "sum", "bias": True,
                              "grad_input": True, "grad_weight": True, "dtype": "fp16"}),
])  # fmt: skip
def test_long_chains_large_determinants_short_steps_and_gates_of_many_features_are_not_refused(op, axes):
    case = nearpeak.case(op, **axes)
    for variant in variants_of(case):
        assert [one for one in validate(case, variant, seed=1).results if one.failed and one.check != "V0"] == []


def test_a_gradient_by_the_number_of_rows_is_seen_however_many_there_are():
    case = nearpeak.case("cross_entropy", rows=2048, classes=9, reduction="mean", dtype="bf16")
    found = {mutant.name: mutant for mutant in mutants_of(case) if mutant.of_gradient}
    assert killed_by(case, found["gradient zero"].implementation(), seed=0) == "V9"
    assert killed_by(case, found["gradient by the wrong count"].implementation(), seed=0) == "V9"


def expected(values):
    bound = np.full(values.shape, 1e-6)
    one = Expected(
        values=values, rounded=values, bound=bound, spread=bound, floor=bound, inner=bound, once=False, dtype="fp32"
    )
    return {"y": one}


def test_beyond_its_bound_an_answer_may_be_about_as_far_as_pytorch_s_own():
    values = np.linspace(1.0, 2.0, 100)
    wanted = expected(values)

    def status(error, usual):
        result = compared("V5", {"y": values + error}, wanted, "here")
        return as_good(result, {"y": values + usual}, wanted).status

    assert status(3e-6, 0.5e-6) == "NUMERIC_FAIL"  # PyTorch is within the bound, which stands
    assert status(3e-6, 2e-6) == "PASS"
    assert status(5e-6, 2e-6) == "NUMERIC_FAIL"  # more than twice as far
    assert status(9e-6, 9e-6) == "NUMERIC_FAIL"  # so far that PyTorch itself is wrong
    assert margin("bf16", 100) > margin("fp32", 100)


def test_lost_bits_below_the_bound_of_a_chain_are_seen_by_the_error_of_all():
    case = nearpeak.case("softmax", rows=64, columns=256, dtype="bf16")

    def coarse(tensors, **_):
        e = (tensors["x"].float() - tensors["x"].float().amax(-1, keepdim=True)).exp()
        y = e / e.sum(-1, keepdim=True)
        return {"y": (y * (1 + 0.012 * torch.sign(torch.sin(1e6 * y)))).bfloat16()}

    found = validate(case, coarse, seed=1)
    assert "V6" in found.failed
    assert "as good as PyTorch" in found.results[6].reason


def test_updates_too_small_for_the_format_are_a_bias_of_every_implementation():
    case = nearpeak.case("adamw", parameters=300, dtype="bf16")
    assert [validate(case, pytorch(case), seed=seed).status for seed in (9, 11)] == ["PASS", "PASS"]


def test_the_largest_kernels_of_pytorch_are_accepted():
    for op, axes in (("layer_norm", {"rows": 256, "hidden": 512}), ("softmax", {"rows": 8, "columns": 16000})):
        for dtype in ("fp32", "bf16", "fp16"):
            case = nearpeak.case(op, **axes, dtype=dtype)
            found = validate(case, pytorch(case), seed=3)
            assert found.status == "PASS", (case.label(), found.reason)


@pytest.mark.parametrize("op", ["batch_norm", "layer_norm"])
def test_a_variance_by_the_wrong_count_is_seen_in_bf16_however_many_elements_there_are(op):
    axes = {"rows": 6, "hidden": 160}
    axes = {"batch": 16, "channels": 3, "spatial": 10, "train": True} if op == "batch_norm" else axes
    case = nearpeak.case(op, **axes, dtype="bf16")
    wrong = next(one for one in mutants_of(case) if one.name == "variance by n - 1")
    assert killed_by(case, wrong.implementation(), seed=3)
    assert not validate(case, pytorch(case), seed=3).failed


def test_a_sum_in_bf16_is_rounded_once():
    case = nearpeak.case("gemm", m=8, n=8, k=20, dtype="bf16")

    def in_two_parts(tensors, **_):
        a, b = tensors["a"], tensors["b"]
        return {"y": a[..., :10] @ b[:, :10] + a[..., 10:] @ b[:, 10:]}

    assert validate(case, pytorch(case), seed=0).status == "PASS"
    assert validate(case, in_two_parts, seed=0).status == "NUMERIC_FAIL"


def test_muon_and_sgd_in_bf16_are_accepted_where_pytorch_is_right():
    for case in (
        nearpeak.case("muon", rows=32, columns=48, dtype="fp32"),
        nearpeak.case("sgd", parameters=100, momentum=True, decay=True, dtype="bf16"),
    ):
        assert validate(case, pytorch(case), seed=0).status == "PASS"


class Kth(torch.autograd.Function):
    """The k-th smallest, whose gradient is that of the chosen one of equal values."""

    @staticmethod
    def forward(context, x, k, last, factor, beside):
        value = torch.kthvalue(x, k, -1).values
        equal = x == value[:, None]
        place = x.shape[-1] - 1 - equal.flip(-1).int().argmax(-1) if last else equal.int().argmax(-1)
        context.save_for_backward((place + beside) % x.shape[-1])
        context.shape, context.factor = x.shape, factor
        context.mark_non_differentiable(place)
        return value, place

    @staticmethod
    def backward(context, upstream, _):
        (place,) = context.saved_tensors
        found = upstream.new_zeros(context.shape).scatter(-1, place[:, None], context.factor * upstream[:, None])
        return found, None, None, None, None


def kth(*, last, factor=1.0, beside=0):
    def call(tensors, k, indices, **_):
        value, place = Kth.apply(tensors["x"], k, last, factor, beside)
        return {"values": value} | ({"indices": place} if indices else {})

    return call


@pytest.mark.parametrize("indices", [True, False])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_gradient_may_be_that_of_any_of_equal_values_also_where_no_position_is_returned(indices, dtype):
    case = nearpeak.case("kthvalue", rows=6, columns=700, k=350, indices=indices, dtype=dtype)
    for last in (True, False):
        found = validate(case, kth(last=last), seed=1)
        assert found.status == "PASS", found.reason
    assert validate(case, kth(last=False, factor=1.5), seed=1).failed == ("V9",)
    assert validate(case, kth(last=False, beside=1), seed=1).failed == ("V9",)


def test_rounds_of_few_cases_are_held_as_those_of_a_large_one_take_a_gigabyte():
    one, *others = (nearpeak.case("softmax", rows=3, columns=columns, dtype="fp32") for columns in (5, 6, 7))
    held = rounds_of(one, 0)
    assert rounds_of(one, 0) is held
    for other in others:
        rounds_of(other, 0)
    assert rounds_of(one, 0) is not held
