"""Bounds of programs against bounds of equivalent ones: none may be above that of a cheaper equivalent.

`python -m benchmarks.cheaper_programs --pairs 10000 --seed 1 [kind …]` draws random pairs and prints every violation
with the seed that repeats it.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from benchmarks import (  # noqa: F401  # register their kinds
    _algebra_pairs,
    _format_pairs,
    _parts_pairs,
    _shared_pairs,
    _structure_pairs,
)
from benchmarks._equivalent_programs import KINDS, Program, program
from benchmarks._figures import Figure
from nearpeak.bounds.case_bound import work_bound
from nearpeak.bounds.step.step_bound import least_work, step_bound
from nearpeak.core.answers.bound import PROVED, Policy
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.target import Target
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.targets import target_of

TARGETS = ("h100_sxm", "b200_sxm")
TERMS = ("matrix", "dram")
"""Terms that are compared too: of small programs one of them never limits."""
POLICY = Policy()
TOLERANCE_RATIO = 1e-9
"""Rounding of the sums of times that are compared."""


FIGURES = ("equivalent_programs",)
_MEASURED_PAIRS = 1000
"""Pairs that are drawn as a benchmark."""


class Violation(NamedTuple):
    """A bound above that of an equivalent program."""

    seed: int
    """Seed of the pair."""
    kinds: tuple[str, ...]
    """Kinds of its stages."""
    term: str
    """What is larger: `bound`, or the term by name."""
    ratio: float
    """First over second."""


def violations(seed: int, names: tuple[str, ...] = ()) -> Iterator[Violation]:
    """Yield where the bound of the first program of a pair, or a term of it, is above that of the second."""
    pair = program(random.Random(seed), names)
    first, second = (captured(pair, which) for which in (pair.first, pair.second))
    for target in map(target_of, TARGETS):
        left, right = _times(first, target), _times(second, target)
        for term, time_s in left.items():
            if time_s > right.get(term, 0.0) * (1 + TOLERANCE_RATIO):
                yield Violation(seed, pair.kinds, f"{term} on {target.name}", time_s / max(right.get(term, 0.0), 1e-30))


def captured(pair: Program, function: Any) -> Any:
    """Return the workload of one of both programs."""
    options = CaptureOptions(guess_sizes=pair.guess_sizes)
    return capture_torch(lambda: function, lambda: (tuple(map(_unknown, pair.inputs)), {}), options, name="pair")


def _unknown(tensor: Any) -> Any:
    """Return a tensor of the same shape and format whose values a capture does not know."""
    drawn = torch.rand(tensor.shape)
    return drawn > 0.5 if tensor.dtype == torch.bool else (drawn * 2).to(tensor.dtype)


def _times(workload: Any, target: Target) -> dict[str, float]:
    """Return the bound, and the proved terms that it would have if nothing else limited it."""
    simplified = work_bound(least_work(workload)[1].simplified, target, POLICY)
    terms = {term.name: term.time_s for term in simplified.terms if term.status == PROVED and term.name in TERMS}
    return {"bound": step_bound(workload, target, POLICY).time_s} | terms


def measure() -> Iterator[Figure]:
    """Yield how many of a sample of pairs have a bound above that of the equivalent."""
    above = sum(any(violations(seed)) for seed in range(_MEASURED_PAIRS))
    yield Figure(
        name="equivalent_programs", value=above, unit=f"of {_MEASURED_PAIRS} pairs above", bar="0", passed=not above,
        seed=0,
    )  # fmt: skip


def main() -> None:
    """Draw pairs and print every violation, and how many pairs there were of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], default=[])
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    above = 0
    for seed in range(arguments.seed, arguments.seed + arguments.pairs):
        found = list(violations(seed, tuple(arguments.kinds)))
        above += bool(found)
        for violation in found:
            print(
                f"seed {violation.seed}: {violation.kinds}: {violation.term} is {violation.ratio:.4g} times", flush=True
            )
        counts.update(program(random.Random(seed), tuple(arguments.kinds)).kinds)
    print(f"{above} of {arguments.pairs} pairs above; stages: {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main()
