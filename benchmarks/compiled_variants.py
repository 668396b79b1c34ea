"""PyTorch's compiled form of a sample of operators, judged by the contract: each of them should be accepted.

`python -m benchmarks.compiled_variants --seed N [operator …]` repeats a sample, or judges the operators that are named.
"""

import argparse
import logging
import multiprocessing
import random
import secrets
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks._figures import Figure
from benchmarks.mutants import SEED, cases
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS, label_of
from nearpeak.validation import validate
from nearpeak.validation.mutants.compiled_variant import compiled_variant, why_not_compiled

FIGURES = ("compiled_variants_accepted", "compiled_variants_failed", "compiled_variant_operators")
ACCEPTED, REFUSED, FAILED = "accepted", "REFUSED", "no compiled form"
COUNT = 44
"""Operators of a sample: a case takes seconds to compile."""


def measure() -> Iterator[Figure]:
    """Yield how many compiled forms of a fresh sample are accepted; nothing where none can be made."""
    seed = secrets.randbelow(10**6)
    yield from _figures(sampled(seed), seed)


def sampled(seed: int) -> list[str]:
    """Return the operators of a sample, sorted."""
    return sorted(random.Random(seed).sample(sorted(OPS), COUNT))


def _figures(names: list[str], seed: int) -> Iterator[Figure]:
    if reason := why_not_compiled():
        print(reason, flush=True)
        return
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for judged in pool.imap_unordered(partial(_judged, seed=seed), names):
            for label, outcome in judged:
                counts[outcome.partition(":")[0]] += 1
                print(f"{label}: {outcome}", flush=True)
    accepted, found = counts[ACCEPTED], counts[ACCEPTED] + counts[REFUSED]
    yield Figure(
        name="compiled_variants_accepted", value=accepted, unit=f"of {found:,} compiled forms", bar="all",
        passed=accepted == found > 0, seed=seed,
    )  # fmt: skip
    yield Figure(
        name="compiled_variants_failed", value=counts[FAILED], unit="cases on which the compiler itself fails", bar="",
        passed=True, seed=seed,
    )  # fmt: skip
    yield Figure(
        name="compiled_variant_operators", value=len(names), unit="operators in two formats", bar=">= 40",
        passed=len(names) >= 40, seed=seed,
    )  # fmt: skip


def _judged(op: str, *, seed: int) -> list[tuple[str, str]]:
    """Return the cases of an operator, one drawn in each of its formats, with why the compiled form is refused."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    by_format: dict[str, list[Case]] = {}
    for case in cases(op):
        by_format.setdefault(dict(case.dtypes)["dtype"], []).append(case)
    draw = random.Random(f"{op} {seed}")
    drawn = [draw.choice(found) for found in list(by_format.values())[:2]]
    return [(label_of(case), outcome_of(case)) for case in drawn]


def outcome_of(case: Case) -> str:
    """Return that the compiled form of a case is accepted, or what refuses it and why."""
    try:
        variant = compiled_variant(case)
    except MeasureError as error:
        return f"{FAILED}: {error}"
    found = validate(case, variant, seed=SEED)
    wrong = [result for result in found.results if result.failed and result.check != "V0"]
    return f"{REFUSED}: {wrong[0].check} {wrong[0].reason}" if wrong else ACCEPTED


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_variants", description=__doc__)
    parser.add_argument("operators", nargs="*", help="a sample of all unless named")
    parser.add_argument("--seed", type=int, help="repeats a sample")
    options = parser.parse_args()
    drawn_seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    print(f"seed {drawn_seed}", flush=True)
    for figure in _figures(options.operators or sampled(drawn_seed), drawn_seed):
        print(figure.name, figure.shown(), "passed" if figure.passed else "MISSED", figure.bar)
