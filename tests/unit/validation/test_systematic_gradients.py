"""Gradients in 16 bits over many draws: a wrong count in one of their terms shows, intermediates in 16 bits do not."""

import re

import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate
from nearpeak.validation.comparison.systematic_error import DOUBTFUL
from nearpeak.validation.comparison.systematic_gradient_error import _apart, _draw, _errors, _narrow, _steps
from nearpeak.validation.oracle import gradient_oracle, gradient_terms
from nearpeak.validation.oracle.gradient_terms import step_description, terms_of

torch = pytest.importorskip("torch")
WIDE = {"hidden": 96, "rows": 16}
NARROW = ["bf16", "fp16"]


class Norm(torch.autograd.Function):
    """A layer norm in fp32 whose gradient stores what `stored` names in 16 bits and counts otherwise in `fewer`."""

    @staticmethod
    def forward(context, x, weight, bias, stored, fewer):
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        factor = ((wide - mean).pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
        context.save_for_backward(wide - mean, factor, weight)
        context.stored, context.fewer = stored, fewer
        return ((wide - mean) * factor * weight.float() + bias.float()).to(x.dtype)

    @staticmethod
    def backward(context, upstream):
        centred, factor, weight = context.saved_tensors
        dtype, count = weight.dtype, centred.shape[-1]

        def kept(name, values):
            return values.to(dtype).float() if name in context.stored else values

        def mean(name, values):
            return values.sum(-1, keepdim=True) / (count - (name in context.fewer))

        factor = kept("factor", factor if "factor" not in context.fewer else factor * ((count - 1) / count) ** 0.5)
        row = kept("row", centred * factor)
        wide = kept("weighted", upstream.float() * weight.float())
        along = kept("product", mean("product", wide * row)) * row
        x = factor * kept("difference", wide - kept("mean", mean("mean", wide)) - along)
        return x.to(dtype), (upstream.float() * row).sum(0).to(dtype), upstream.float().sum(0).to(dtype), None, None


def norm(*, stored=(), fewer=()):
    return lambda tensors, **_: {
        "output": Norm.apply(tensors["input"], tensors["weight"], tensors["bias"], stored, fewer)
    }


def v9(implementation, op, dtype, **axes):
    found = validate(nearpeak.case(op, dtype=dtype, **axes), implementation, seed=1)
    assert set(found.failed) <= {"V9"}, found.reason
    return found.results[9]


FEWER = [("mean",), ("product",), ("mean", "product"), ("factor",)]


@pytest.mark.parametrize(("fewer", "dtype"), in_turn(FEWER, NARROW, count=2))
def test_a_norm_whose_gradient_divides_by_one_less_is_refused(fewer, dtype):
    found = v9(norm(fewer=fewer), "layer_norm", dtype, **WIDE)
    assert found.status == "NUMERIC_FAIL"
    assert found.reason.startswith(
        ("grad_input: over 12 draws", "grad_weight: over 12", "gradients of normal inputs: grad")
    )


def test_a_step_of_the_reference_is_named_by_what_it_is_and_where_it_stands():
    said = v9(norm(fewer=("product",)), "layer_norm", "bf16", **WIDE).reason
    assert re.fullmatch(
        r"grad_input: over \d+ draws what [a-z_.]+ in `.+` \(\w+\.py:\d+\) adds to it is off by .+ of the whole, .+",
        said,
    ), said


@pytest.mark.parametrize(("op", "name", "axes"), [
    ("layer_norm", "input", WIDE), ("attention", "key", {"batch": 1, "heads": 2, "q": 8, "kv": 12, "dim": 16}),
    ("paged_attention", "query", {"batch": 2, "heads": 4, "tokens": 32, "pages": 2, "dim": 8, "kv_heads": 2}),
])  # fmt: skip
def test_every_step_that_is_looked_at_has_a_name(op, name, axes):
    case = nearpeak.case(op, dtype="bf16", **axes)
    one = _draw(case, 1, 0)
    steps = _steps(case, 1)
    said = [step_description(one.derived(()), step, case.label()) for step in steps]
    assert said
    assert all(re.fullmatch(r"[a-z_.]+ (in `.+` \(\w+\.py:\d+\)|on the way back, step \d+)", one) for one in said), said


@pytest.mark.parametrize(("op", "axes"), [
    ("layer_norm", WIDE), ("recurrent", {"batch": 2, "steps": 4, "features": 3, "hidden": 4, "cell": "lstm"}),
])  # fmt: skip
def test_what_follows_a_step_is_the_same_watched_or_not(op, axes, monkeypatch):
    case = nearpeak.case(op, dtype="bf16", **axes)
    one, steps = _draw(case, 1, 0), _steps(case, 1)
    plain = terms_of(one.derived(()), _narrow(case), steps, case.label())
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(gradient_terms._Step, "is_done", never, raising=False)
    watched = terms_of(one.derived(()), _narrow(case), steps, case.label())
    assert {name: set(by_step) for name, by_step in plain.items()} == {name: set(one) for name, one in watched.items()}
    assert all((plain[name][step] == one).all() for name, found in watched.items() for step, one in found.items())


def test_the_gradients_of_a_round_are_derived_once(monkeypatch):
    case, asked = nearpeak.case("softmax", rows=3, columns=7, dtype="fp32"), []
    derive = gradient_oracle.gradients_expected

    def counted(question, upstream, *more):
        asked.append((id(question), upstream["grad_y"].stride()))  # the same is asked for the gradient of a sum
        return derive(question, upstream, *more)

    monkeypatch.setattr(gradient_oracle, "gradients_expected", counted)
    gradient_oracle.expected_gradients.cache_clear()
    assert validate(case, pytorch(case), seed=771).status == "PASS"
    assert len(asked) == len(set(asked)) > 1


STORED = [(), ("row",), ("factor",), ("mean", "product"), ("weighted", "difference"), ("row", "weighted", "mean")]


@pytest.mark.parametrize(("stored", "hidden", "dtype"), in_turn(STORED, [96, 1024], NARROW, count=3))
def test_a_norm_that_stores_intermediates_of_its_gradient_in_16_bits_is_right(stored, hidden, dtype):
    assert v9(norm(stored=stored), "layer_norm", dtype, rows=6, hidden=hidden).status == "PASS"


class Scaled(torch.autograd.Function):
    """What passes its gradient on by a factor that no element shows."""

    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.float()

    @staticmethod
    def backward(context, upstream):
        return upstream * context.factor, None


def scaled(op, name, factor):
    """The operator in fp32, rounded once, whose gradient of one input is by a factor too large."""

    def call(tensors, **arguments):
        wide = {
            key: Scaled.apply(x, factor if key == name else 1.0) for key, x in tensors.items() if x.is_floating_point()
        }
        found = OPS[op].torch_call({**tensors, **wide}, **arguments)
        return {key: y.to(tensors[name].dtype) for key, y in found.items()}

    return call


OPERATORS = [
    ("rms_norm", "weight", {"rows": 8, "hidden": 64}), ("softmax", "x", {"rows": 8, "columns": 64}),
    ("cross_entropy", "x", {"rows": 8, "classes": 64}), ("gemm", "b", {"m": 8, "n": 12, "k": 40}),
    ("elementwise", "a", {"elements": 500, "function": "gelu"}),
    ("reduce", "x", {"outputs": 6, "reduced": 40, "function": "logsumexp"}),
    ("attention", "key", {"batch": 1, "heads": 2, "q": 8, "kv": 12, "dim": 16}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "dtype"), in_turn(OPERATORS, NARROW, count=3))
def test_a_factor_below_half_a_roundoff_is_seen_in_any_operators_gradient(operator, dtype):
    op, name, axes = operator
    half = {"bf16": 2.0**-9, "fp16": 2.0**-12}[dtype]
    found = v9(scaled(op, name, 1 + half), op, dtype, **axes)
    assert found.status == "NUMERIC_FAIL"
    assert f"grad_{name}: over" in found.reason
    assert v9(scaled(op, name, 1.0), op, dtype, **axes).status == "PASS"


@pytest.mark.parametrize(("operator", "dtype"), in_turn([*OPERATORS, ("layer_norm", "input", WIDE)], NARROW, count=3))
def test_pytorchs_own_gradients_are_off_by_luck_alone(operator, dtype):
    op, _, axes = operator
    case = nearpeak.case(op, dtype=dtype, **axes)
    assert max(map(_apart, _errors(case, pytorch(case), 1, 48).values()), default=0.0) < DOUBTFUL + 1
