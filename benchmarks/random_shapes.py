"""Mutants killed and legitimate variants accepted at shapes that nobody chose: over every operator, anew each time.

`python -m benchmarks.random_shapes --seed N [--count 2] [operator …]` repeats a draw and prints what is equivalent and
every miss; without a seed, and as a benchmark, a fresh one is drawn and kept with the figures.
"""

import argparse
import multiprocessing
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks._figures import Figure
from benchmarks._random_shapes import edge_cases, random_cases
from benchmarks.mutants import LEFT_OUT, judged_cases
from nearpeak.ops import OPS

FIGURES = ("random_mutants_killed", "random_mutants_sampled", "random_variants_accepted", "random_operators")
COUNT = 2
"""Shapes of an operator, each in another format; which ones goes with the seed."""
EDGES = 1
"""Directed cases of an operator with one axis at 1."""


def measure() -> Iterator[Figure]:
    """Yield how many mutants are killed and variants accepted at shapes of a fresh seed."""
    yield from _figures(list(OPS), secrets.randbelow(10**6), COUNT, say=False)


def _figures(names: list[str], seed: int, count: int, *, say: bool) -> Iterator[Figure]:
    total: Counter[str] = Counter()
    print(f"  seed {seed}", flush=True)  # first, as a process that dies says nothing
    # Unlike a `Pool`, which waits for ever, it says when a process dies in native code.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for counts, said in pool.map(partial(_judged, count=count, seed=seed), names):
            total += counts
            for line in said:
                if say or any(word in line for word in ("SURVIVED", "REFUSED", LEFT_OUT, "sampled:", "no shape")):
                    print(line, flush=True)
    mutants, variants = total["killed"] + total["survived"], total["accepted"] + total["refused"]
    yield _of("random_mutants_killed", total["killed"], mutants, "mutants", seed)
    yield Figure(
        name="random_mutants_sampled", value=total["sampled"], unit="excluded without a proof", bar="0",
        passed=not total["sampled"], seed=seed,
    )  # fmt: skip
    yield _of("random_variants_accepted", total["accepted"], variants, "variants", seed)
    yield _of("random_operators", total["operators"], len(names), "operators with a shape", seed)


def _judged(op: str, *, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    try:
        found = [*random_cases(op, count, seed), *edge_cases(op, EDGES, seed)]
        counts, said = judged_cases(found)
    except Exception as error:
        error.add_note(f"python -m benchmarks.random_shapes --seed {seed} --count {count} {op}")
        raise
    counts["operators"] = bool(found)
    return counts, said if found else [f"{op}: no shape found"]


def _of(name: str, value: int, of: int, what: str, seed: int) -> Figure:
    return Figure(name=name, value=value, unit=f"of {of:,} {what}", bar="all", passed=value == of > 0, seed=seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_shapes", description=__doc__)
    parser.add_argument("operators", nargs="*", help="all unless named")
    parser.add_argument("--seed", type=int, help="repeats a draw")
    parser.add_argument("--count", type=int, default=COUNT, help="shapes of an operator")
    options = parser.parse_args()
    drawn = secrets.randbelow(10**6) if options.seed is None else options.seed
    for figure in _figures(options.operators or list(OPS), drawn, options.count, say=True):
        print(figure.name, figure.shown(), "passed" if figure.passed else "MISSED", figure.bar)
