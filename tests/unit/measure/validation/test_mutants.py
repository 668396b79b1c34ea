"""The contract on itself: a seeded sample of mutants must be killed, of legitimate variants accepted, of proofs hold.

`python -m benchmarks.run mutants` goes over all of them.
"""

import itertools
import warnings
import zlib

import pytest

pytest.importorskip("torch")
from benchmarks.mutants import SEED, cases, formats_of, judged_mutants, judged_variants

from nearpeak.measure.validation import pytorch, validate
from nearpeak.measure.validation.mutants import mutants_of, reason_for_equivalence
from nearpeak.measure.validation.mutants.equivalence import IDENTITY, PROVED, SAME_BITS, SAMPLED
from nearpeak.ops import OPS

QUICK = ("gemm", "softmax", "max_pool")
"""Of every family one; they run in `make check` too."""
SHARE = 8
"""One in so many mutants is drawn."""


def drawn(op):
    """A seeded sample: of the operator one case, whose format differs from operator to operator."""
    found = list(cases(op))
    return found[zlib.crc32(op.encode()) % len(found)]


def survivors(case, share):
    def chosen(name):
        return zlib.crc32(f"{case.digest}{name}".encode()) % share == 0

    return [name for name, outcome in judged_mutants(case, chosen) if outcome == "SURVIVED"]


@pytest.mark.parametrize("op", QUICK)
def test_mutants_of_the_families_are_killed_and_variants_accepted(op):
    warnings.simplefilter("ignore")
    assert survivors(next(cases(op)), share=3) == []
    assert [refused for refused in judged_variants(next(cases(op))) if refused[1]] == []


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_a_sample_of_the_mutants_of_every_operator_is_killed(op):
    warnings.simplefilter("ignore")
    assert survivors(drawn(op), SHARE) == []


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_legitimate_variants_of_every_operator_are_accepted(op):
    warnings.simplefilter("ignore")
    assert [refused for refused in judged_variants(drawn(op)) if refused[1]] == []


def equivalent():
    """Mutants that a written reason calls equivalent: case, name, what the proof must say."""
    mean = next(cases("adaptive_avg_pool"))
    yield mean, "operand transposed input", f"{PROVED} {IDENTITY}; analytic"
    yield next(cases("kfac_factor")), "wrong group or row a[0]", f"{PROVED} {IDENTITY}; analytic"
    yield next(cases("fill")), "stale output", ""
    yield next(cases("conv")), "choice ignored bias", f"{PROVED} {SAME_BITS}; analytic"
    yield (
        next(one for one in cases("nll_loss") if ("reduction", "mean") in one.attributes),
        "columns swapped y",
        f"{PROVED} it leaves every element",
    )
    yield next(cases("nonzero")), "tile counted twice x[0]", f"{SAMPLED} {IDENTITY}"


@pytest.mark.parametrize(("case", "name", "reason"), equivalent(), ids=lambda part: getattr(part, "op", None))
def test_equivalence_is_proved_again_with_other_seeds(case, name, reason):
    found = {mutant.name: mutant for mutant in mutants_of(case)}[name]
    for seed in (SEED, 77):
        said = reason_for_equivalence(case, found, seed=seed)
        assert said.startswith(reason)
        assert bool(said) == bool(reason)


def test_a_mutant_that_differs_once_is_not_called_equivalent():
    case = next(cases("softmax"))
    some = itertools.islice(mutants_of(case), 0, None, 4)
    assert not any(reason_for_equivalence(case, mutant, seed=SEED) for mutant in some)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_every_operator_is_judged_in_two_formats(op):
    found = {dict(case.dtypes)["dtype"] for case in cases(op)}
    assert len(found) >= 2, formats_of(op)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_every_operator_has_a_case_that_tells_right_from_constant(op):
    warnings.simplefilter("ignore")
    gates = [validate(one, pytorch(one), seed=SEED).results[0].status for one in cases(op)]
    assert "PASS" in gates
