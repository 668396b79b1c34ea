"""The contract on itself: a seeded sample of mutants must be killed, of legitimate variants accepted, of proofs hold.

`python -m benchmarks.run mutants` goes over all of them.
"""

import functools
import itertools
import warnings
import zlib

import pytest

pytest.importorskip("torch")
from benchmarks.mutants import DEFECT, SEED, cases, formats_of, judged_mutants, judged_variants
from tests.sampling import long

import nearpeak
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS
from nearpeak.validation import forward_case, mutants, pytorch, validate
from nearpeak.validation.checks.v00_sensitivity import sensitivity
from nearpeak.validation.mutants import (
    definition_identities,
    mutants_of,
    pooling_equivalence,
    program_equivalence,
    reason_for_equivalence,
)
from nearpeak.validation.mutants.compiled_variant import compiled_variant, why_not_compiled
from nearpeak.validation.mutants.equivalence import IDENTITY, PROVED
from nearpeak.validation.running.trial import Trial

QUICK = ("gemm", "softmax", "max_pool")
"""Of every family one; they run in `make check` too."""
SHARE = 8
"""One in so many mutants is drawn."""
SAMPLE = [op if zlib.crc32(op.encode()) % 6 == 0 else long(op) for op in OPS]
"""A sixth of the operators, always the same; the benchmark goes over all, and so does the sweep of long tests."""


@functools.cache
def drawn(op):
    """A seeded sample: of the operator one case, whose format differs from operator to operator."""
    found = list(cases(op))
    return found[zlib.crc32(op.encode()) % len(found)]


def survivors(case, share):
    def chosen(name):
        return zlib.crc32(f"{case.digest}{name}".encode()) % share == 0

    return [name for name, outcome in judged_mutants(case, chosen) if outcome == "SURVIVED"]


def refused(case):
    """Variants that the contract refuses and should not; on some processors PyTorch has kernels that are wrong."""
    return [(name, why) for name, why in judged_variants(case) if why and not why.startswith(DEFECT)]


@pytest.mark.parametrize("op", QUICK)
def test_mutants_of_the_families_are_killed_and_variants_accepted(op):
    warnings.simplefilter("ignore")
    assert survivors(next(cases(op)), share=3) == []
    assert refused(next(cases(op))) == []


@pytest.mark.slow
@pytest.mark.parametrize("op", SAMPLE)
def test_a_sample_of_the_mutants_of_every_operator_is_killed(op):
    warnings.simplefilter("ignore")
    assert survivors(drawn(op), SHARE) == []


@pytest.mark.slow
@pytest.mark.parametrize("op", SAMPLE)
def test_legitimate_variants_of_every_operator_are_accepted(op):
    warnings.simplefilter("ignore")
    assert refused(drawn(op)) == []


def equivalent():
    """Mutants that a written reason calls equivalent: case, name, what the proof must say."""
    mean = next(cases("adaptive_avg_pool"))
    yield mean, "operand transposed input", f"{PROVED} {IDENTITY}; analytic"
    yield next(cases("kfac_factor")), "wrong group or row a[0]", f"{PROVED} {IDENTITY}; analytic"
    yield next(cases("fill")), "stale output", ""
    yield next(cases("conv")), "choice ignored bias", f"{PROVED} PyTorch runs the same program"
    yield (
        next(one for one in cases("nll_loss") if ("reduction", "mean") in one.attributes),
        "columns swapped y",
        f"{PROVED} it leaves every element",
    )
    yield next(cases("nonzero")), "tile counted twice x[0]", f"{PROVED} {IDENTITY}; doubling is exact"


@pytest.mark.parametrize(("case", "name", "reason"), equivalent(), ids=lambda part: getattr(part, "op", None))
def test_equivalence_is_proved_again_with_other_seeds(case, name, reason):
    found = {mutant.name: mutant for mutant in mutants_of(case)}[name]
    for seed in (SEED, 77):
        said = reason_for_equivalence(case, found, seed=seed)
        assert said.startswith(reason)
        assert bool(said) == bool(reason)


@pytest.mark.parametrize(("said", "kind"), [("sampled: the same", "survived"), ("proved: the same", "equivalent")])
def test_what_is_the_same_in_a_sample_only_is_not_left_out_of_the_score(said, kind, monkeypatch):
    monkeypatch.setattr(mutants, "killed_by", lambda *_, **__: "")
    monkeypatch.setattr(mutants, "reason_for_equivalence", lambda *_, **__: said)
    score = mutants.mutation_score(nearpeak.case("multinomial", rows=1, categories=2, samples=3, dtype="fp32"), seed=1)
    assert len(getattr(score, kind)) == len(score.survived) + len(score.equivalent) > 0


@pytest.mark.slow
def test_pytorch_s_compiled_form_is_accepted():
    """Of one operator, as compiling takes ten seconds; `python -m benchmarks.compiled_variants` judges a sample."""
    if reason := why_not_compiled():
        pytest.skip(reason)
    case = nearpeak.case("softmax", rows=4, columns=33, dtype="bf16")
    found = validate(case, compiled_variant(case), seed=SEED)
    assert [result for result in found.results if result.failed] == []


def test_what_the_compiler_cannot_take_is_no_variant(monkeypatch):
    def refusing(*_, **__):
        raise RuntimeError("backend='inductor' raised:\nno C++ compiler\nmore")

    monkeypatch.setattr("torch.compile", lambda *_, **__: refusing)
    with pytest.raises(MeasureError, match=r"softmax .*: torch\.compile fails: no C\+\+ compiler$"):
        compiled_variant(nearpeak.case("softmax", rows=2, columns=3, dtype="fp32"))


def test_a_mutant_that_differs_once_is_not_called_equivalent():
    case = next(cases("softmax"))
    some = itertools.islice(mutants_of(case), 0, None, 4)
    assert not any(reason_for_equivalence(case, mutant, seed=SEED) for mutant in some)


@pytest.mark.slow
@pytest.mark.parametrize("op", SAMPLE)
def test_every_operator_is_judged_in_two_formats(op):
    found = {dict(case.dtypes)["dtype"] for case in cases(op)}
    assert len(found) >= 2, formats_of(op)


@pytest.mark.slow
@pytest.mark.parametrize("op", SAMPLE)
def test_every_operator_has_a_case_that_tells_right_from_constant(op):
    trials = (Trial(case=forward_case(one), implementation=pytorch(one), seed=SEED) for one in cases(op))
    assert any(sensitivity(trial).status == "PASS" for trial in trials)


def named(op, name, **arguments):
    """Return case and mutant of that name."""
    case = nearpeak.case(op, **arguments)
    return case, next(mutant for mutant in mutants_of(case) if mutant.name == name)


@pytest.mark.parametrize(
    ("argument", "op", "name", "arguments", "apart"),
    [
        (program_equivalence.of_unread, "linalg", "operand ignored pivots",
         {"batch": 1, "n": 3, "right": 1, "function": "lu_solve", "dtype": "fp32"}, "zero kernel"),
        (program_equivalence.of_casts, "cast", "computed in fewer bits",
         {"elements": 9, "dtype": "fp32", "out_dtype": "bf16"}, "operand ignored x"),
        (definition_identities.of_values, "one_hot", "bits lost y", {"rows": 3, "classes": 4, "dtype": "bf16"},
         "tile zeroed y"),
        (definition_identities.of_values, "scatter", "wrong group or row table[1]",
         {"rows": 4, "width": 8, "table_rows": 1, "scalar": True, "dtype": "fp64"}, "tile zeroed table"),
        (pooling_equivalence.of_windows, "adaptive_max_pool", "columns swapped output",
         {"batch": 1, "channels": 1, "w": 2, "ow": 9, "dtype": "fp32"}, "one element wrong output"),
        (pooling_equivalence.of_reach, "max_pool", "padding off by one pw",
         {"batch": 1, "channels": 2, "w": 2, "kw": 4, "sw": 3, "pw": 1, "ceil": True, "dtype": "bf16"}, "zero kernel"),
        (definition_identities.of_apart, "scaled_gemm", "sums in fewer bits a_scale[0]",
         {"m": 33, "n": 5, "k": 31, "dtype": "nvfp4", "b_dtype": "fp4_e2m1", "out_dtype": "bf16"}, "zero kernel"),
        (pooling_equivalence.of_ceil, "max_pool", "ceil mode dropped",
         {"batch": 1, "channels": 1, "w": 6, "kw": 2, "sw": 2, "ceil": True, "dtype": "fp32"}, "zero kernel"),
        (definition_identities.of_flat, "elementwise", "gradient zero",
         {"elements": 5, "function": "trunc_divide", "dtype": "fp32"}, "zero kernel"),
        (definition_identities.of_reflectors, "decomposition", "operand ignored a",
         {"batch": 1, "m": 1, "n": 4, "right": 3, "function": "reflectors_applied", "dtype": "fp64"}, "zero kernel"),
        (definition_identities.of_reflectors, "decomposition", "last slice dropped a[2]",
         {"batch": 1, "m": 2, "n": 4, "right": 3, "function": "reflectors_applied", "dtype": "fp64"},
         "last slice dropped a[1]"),
        (definition_identities.of_epsilon, "adamw", "epsilon inside the root",
         {"parameters": 5, "dtype": "fp16"}, "zero kernel"),
        (program_equivalence.of_stored, "quantise", "bits lost amax",
         {"rows": 3, "columns": 4, "history": 2, "scaling": "delayed", "dtype": "bf16"}, "tile zeroed amax"),
        (definition_identities.of_flat, "elementwise", "gradient zero",
         {"elements": 5, "function": "floor", "dtype": "fp32"}, "zero kernel"),
        (definition_identities.of_counted, "reduce", "computed in fewer bits",
         {"outputs": 3, "reduced": 5, "function": "count_nonzero", "dtype": "fp32"}, "zero kernel"),
    ],
)  # fmt: skip
def test_an_argument_holds_for_the_mutant_it_is_about_and_no_other(argument, op, name, arguments, apart):
    assert argument(*named(op, name, **arguments))
    assert not argument(*named(op, apart, **arguments))


@pytest.mark.parametrize(
    ("argument", "op", "name", "arguments"),
    [
        (pooling_equivalence.of_windows, "adaptive_max_pool", "columns swapped output",
         {"batch": 1, "channels": 1, "w": 8, "ow": 4, "dtype": "fp32"}),
        (pooling_equivalence.of_ceil, "max_pool", "ceil mode dropped",
         {"batch": 1, "channels": 1, "w": 7, "kw": 2, "sw": 2, "ceil": True, "dtype": "fp32"}),
        (definition_identities.of_values, "histogram", "bits lost y", {"elements": 5000, "bins": 1, "dtype": "fp32"}),
        (definition_identities.of_apart, "scaled_gemm", "sums in fewer bits a_scale[0]",
         {"m": 1, "n": 5, "k": 1056, "dtype": "nvfp4", "b_dtype": "fp4_e2m1", "out_dtype": "bf16"}),
        (definition_identities.of_values, "scatter", "wrong group or row table[1]",
         {"rows": 4, "width": 8, "table_rows": 2, "scalar": True, "dtype": "fp64"}),
        (program_equivalence.of_casts, "cast", "computed in fewer bits",
         {"elements": 9, "dtype": "fp32", "out_dtype": "fp16"}),
        (definition_identities.of_epsilon, "optimizer", "epsilon inside the root",
         {"parameters": 5, "rule": "adadelta", "dtype": "fp16"}),
        (definition_identities.of_reflectors, "decomposition", "operand ignored a",
         {"batch": 1, "m": 2, "n": 4, "right": 3, "function": "reflectors_applied", "dtype": "fp64"}),
        (program_equivalence.of_stored, "quantise", "bits lost scale",
         {"rows": 3, "columns": 4, "history": 2, "scaling": "delayed", "dtype": "bf16"}),
        (definition_identities.of_counted, "reduce", "computed in fewer bits",
         {"outputs": 3, "reduced": 5, "function": "norm", "dtype": "fp32"}),
        (pooling_equivalence.of_steps, "fractional_max_pool", "last slice dropped samples[2]",
         {"batch": 1, "channels": 1, "w": 7, "kw": 2, "ow": 4, "h": 7, "kh": 2, "oh": 4, "dtype": "fp32"}),
    ],
)  # fmt: skip
def test_where_the_reason_does_not_hold_there_is_no_argument(argument, op, name, arguments):
    assert not argument(*named(op, name, **arguments))
