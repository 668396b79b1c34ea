"""Mutants killed and legitimate variants accepted by the validation contract, over every operator in two formats.

`python -m benchmarks.mutants [operator …]` prints every mutant that is equivalent, with its reason, and every miss.
"""

import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import torch
from tests.golden.directed import directed

from benchmarks._figures import Figure
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, label_of
from nearpeak.validation import refuse_narrow, validate
from nearpeak.validation.mutants import killed_by, mutants_of, reason_for_equivalence
from nearpeak.validation.mutants.equivalence import SAMPLED
from nearpeak.validation.mutants.legitimate_variants import PLAIN, variants_of
from nearpeak.validation.mutants.torch_defects import defect, refused_gradient
from nearpeak.validation.oracle.float64_oracle import declared_formats

FIGURES = (
    "mutants_killed", "mutants_equivalent", "mutants_sampled", "variants_accepted", "mutant_operators",
)  # fmt: skip
SEED = 1
DEFECT = "defect of PyTorch:"
"""How the reason begins why a kernel of its own is no legitimate variant on this processor."""
LEFT_OUT = "mutants left out"
"""What is said of a case whose own kernel is defective."""
FORMATS = ("fp32", "bf16", "fp64")
"""Tried in this order; an operator counts in the first two that PyTorch computes and the contract covers."""
LARGER = {
    # Sums long enough for an accumulator of few bits to show.
    "gemm": {"m": 8, "n": 12, "k": 256},
    "conv": {"batch": 1, "in_channels": 64, "out_channels": 4, "h": 5, "w": 6, "kh": 3, "kw": 3, "ph": 1, "pw": 1},
    "conv_transpose": {"batch": 1, "in_channels": 64, "out_channels": 4, "h": 4, "w": 5, "kh": 2, "kw": 2},
    "grouped_gemm": {"m": 12, "n": 8, "k": 128, "groups": 3},
    "scaled_gemm": {"m": 3, "n": 5, "k": 128},
    "kfac_factor": {"tokens": 128, "dim": 5},
    "kfac_precondition": {"rows": 6, "columns": 128},
    "trilinear": {"batch": 3, "out": 4, "left": 5, "right": 768},
    # Columns that complete a basis are any that do.
    "decomposition": {"batch": 2, "m": 7, "n": 4, "function": "svd_full"},
    # Few elements leave room for luck: no edge is crossed, no other row is drawn.
    "histogram": {"elements": 400, "bins": 8},
    "isin": {"elements": 60, "tests": 40},
    "multinomial": {"rows": 40, "categories": 9, "samples": 2},
}
"""Cases of their own, beside the first directed one."""
BY_LUCK = ("histogram", "isin", "multinomial")
"""Operators whose directed cases are too small for every mutant to differ."""
CHOICES = {
    "reduce": "function", "scan": "function", "segment_reduce": "function", "pointwise_loss": "function",
    "decomposition": "function", "linalg": "function", "optimizer": "rule", "recurrent": "cell", "fft": "kind",
    "embedding_bag": "mode", "collective": "kind", "softmax": "log", "cross_entropy": "reduction",
    "nll_loss": "reduction", "rotary_embedding": "layout", "elementwise": "function",
}  # fmt: skip
"""Operators that are several: their directed cases with another value of this choice count too."""


def cases(op: str) -> Iterator[Case]:
    """Give the cases of an operator: the first directed one, its other choices and larger ones, in two formats."""
    formats = formats_of(op)
    for line in _lines(op):
        for dtype in [line["dtype"]] if "dtype" in line else formats:
            case = OPS[op].case("forward", **{**line, "dtype": dtype})
            if _is_computed(case):
                yield case


def formats_of(op: str) -> tuple[str, ...]:
    """Return the two formats in which an operator is judged."""
    return tuple(dtype for dtype in FORMATS if _computes(op, dtype))[:2]


def _computes(op: str, dtype: str) -> bool:
    return _is_computed(OPS[op].case("forward", **{**_axes(directed(op)[0]), "dtype": dtype}))


def _is_computed(case: Case) -> bool:
    """Say whether the contract covers the case and PyTorch has kernels for it."""
    try:
        refuse_narrow(case)
        return bool(declared_formats(case))
    except (NearpeakError, NotImplementedError, RuntimeError):
        return False


def _axes(line: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in line.items() if name[0] != "_"}


def _lines(op: str) -> Iterator[dict[str, object]]:
    """Give arguments; those that state a format are judged in that one, and the first two formats so stated count."""
    lines = directed(op)
    choice = "dtype" if "dtype" in lines[0] else CHOICES.get(op, "")
    seen = set()
    for line in () if op in BY_LUCK else lines if choice else lines[:1]:
        if line.get(choice) not in seen and ("dtype" not in line or choice == "dtype"):
            seen.add(line.get(choice))
            yield _axes(line)
    if op in LARGER:
        yield LARGER[op]


def measure() -> Iterator[Figure]:
    """Yield how many mutants are killed and variants accepted, each against all that apply."""
    yield from _figures(list(OPS), say=False)


def _figures(names: list[str], *, say: bool) -> Iterator[Figure]:
    total: Counter[str] = Counter()
    # Unlike a `Pool`, which waits for ever, it says when a process dies in native code.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for counts, said in pool.map(judged, names):
            total += counts
            for line in said:
                if say or any(word in line for word in ("SURVIVED", "REFUSED", LEFT_OUT)):
                    print(line, flush=True)
    applicable = total["killed"] + total["survived"]
    yield _of(name="mutants_killed", value=total["killed"], of=applicable, what="mutants", least=400)
    yield Figure(name="mutants_equivalent", value=total["equivalent"], unit="", bar="", passed=True, seed=SEED)
    without = "equivalent by sampling alone"
    none = not total["sampled"]
    yield Figure(name="mutants_sampled", value=total["sampled"], unit=without, bar="0", passed=none, seed=SEED)
    variants = total["accepted"] + total["refused"]
    yield _of(name="variants_accepted", value=total["accepted"], of=variants, what="variants", least=150)
    what = "operators in two formats"
    yield _of(name="mutant_operators", value=total["two formats"], of=len(names), what=what, least=0)


def judged(op: str) -> tuple[Counter[str], list[str]]:
    """Return the counts of one operator, and a line for each mutant that passes and each variant that is refused."""
    found = list(cases(op))
    counts, said = judged_cases(found)
    counts["two formats"] = len({dict(case.dtypes)["dtype"] for case in found}) >= 2
    return counts, said


def judged_cases(found: Iterable[Case]) -> tuple[Counter[str], list[str]]:
    """Return the counts of some cases, and a line for each mutant that passes and each variant that is refused."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    said: list[str] = []
    for case in found:
        try:
            _judge(case, counts, said)
        except Exception as error:
            error.add_note(label_of(case))
            raise
    return counts, said


def _judge(case: Case, counts: Counter[str], said: list[str]) -> None:
    label, is_defective = label_of(case), False
    for name, outcome in judged_variants(case):
        is_of_library = outcome.startswith(DEFECT)
        is_defective |= is_of_library and name == PLAIN
        counts["defective" if is_of_library else "refused" if outcome else "accepted"] += 1
        said += [f"{label}: {name}: REFUSED: {outcome}"] if outcome else []
    if is_defective:  # what is made of a wrong kernel is refused whatever is changed
        said.append(f"{label}: {LEFT_OUT}")
        return
    for name, outcome in judged_mutants(case):
        kind = "killed" if outcome.startswith("V") else "survived" if outcome == "SURVIVED" else "equivalent"
        counts[kind] += 1
        counts["sampled"] += f"equivalent: {SAMPLED}" in outcome
        said += [f"{label}: {name}: {outcome}"] if kind != "killed" else []


def _of(*, name: str, value: int, of: int, what: str, least: int) -> Figure:
    bar = f"all, of at least {least}" if least else "all"
    return Figure(name=name, value=value, unit=f"of {of:,} {what}", bar=bar, passed=value == of >= least, seed=SEED)


def judged_mutants(case: Case, chosen: Callable[[str], bool] = bool) -> Iterator[tuple[str, str]]:
    """Give each `chosen` mutant with the check that kills it, `equivalent` with the reason, or `SURVIVED`."""
    for mutant in mutants_of(case):
        if not chosen(mutant.name):
            continue
        check = killed_by(case, mutant.implementation(), seed=SEED)
        reason = "" if check else reason_for_equivalence(case, mutant, seed=SEED)
        yield mutant.name, check or (f"equivalent: {reason}" if reason else "SURVIVED")


_ASKED_AGAIN = ("V4", "V7", "V11")
"""Checks that find what is not finite: the first, and those that ask the same again."""


def judged_variants(case: Case) -> Iterator[tuple[str, str]]:
    """Give each legitimate variant with why it was refused, empty where it was not; a defective kernel is none."""
    for variant in variants_of(case):
        found = validate(case, variant, seed=SEED)
        wrong = [result for result in found.results if result.failed and result.check != "V0"]
        checks = tuple(result.check for result in wrong)
        told = {("V9",): refused_gradient}.get(checks)
        if checks[:1] == _ASKED_AGAIN[:1] and set(checks) <= {*_ASKED_AGAIN}:
            told = defect
        shown = told(case, variant, SEED) if told else ""
        reason = f"{wrong[0].check} {wrong[0].reason}" if wrong else ""
        yield variant.name, f"{DEFECT} {shown}" if shown else reason


if __name__ == "__main__":
    for figure in _figures(sys.argv[1:] or list(OPS), say=True):
        print(figure.name, figure.shown(), "passed" if figure.passed else "MISSED", figure.bar)
