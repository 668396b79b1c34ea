"""Detection of systematic error in narrow results: a wrong factor does not average out over fresh inputs."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.comparison.output_comparison import comparable, reachable, values_of
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, unbounded_draw
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF
from nearpeak.validation.running.implementation_run import Implementation, pytorch_of, run

STAGES = ((12, 10.0), (48, 7.0), (144, 6.0))
"""Draws (groups of draws for few results), each of which gives one slope, and the limit of their mean in standard
errors: a correct result exceeds it less than once in 10⁶ (Student's t with 11 degrees of freedom, then nearly the
normal distribution)."""
DOUBTFUL = 3.0
"""Standard errors from which more draws are made."""
ENOUGH, MOST_GROUPED, MOST_ELEMENTS = 64, 16, 2**15
"""Results that let one draw give a slope; most draws pooled for one slope, and most input elements of these."""
LEAST_SHARE = 1 / 256
"""Slope, in roundoffs of the output, that roundings of inputs with few distinct values may add up to."""
STORED_SHARE = 1 / 24
"""The same where a row is stored in the output's format before it is multiplied with a weight: products of two 8-bit
significands are often midpoints, so that the second rounding is biased. bf16 RMS norms computed so (vLLM, Hugging
Face) are 0.016 to 0.030 roundoffs too small (hidden sizes 64 to 4096, six seeds of 144 draws each, 2026-11-23), those
that are rounded once at most 0.006."""


def systematic_fault(case: Case, implementation: Implementation, seed: int) -> str:
    """Return which output is too large or too small by a factor, over fresh inputs; empty where none is.

    Rounding errors have no bias, so that the mean slope of errors over results is 0. Element by element, a variance
    over n - 1 instead of n would be hidden by the roundoff of bf16 from n = 128 on.
    """
    names: set[str] = set()
    for count, limit in STAGES:
        slopes = _slopes(case, implementation, seed, count)
        apart = {name: _apart(output_slopes) for name, output_slopes in slopes.items() if not names or name in names}
        for name, errors in apart.items():
            mean = float(slopes[name].mean())
            if errors > limit and not _is_usual(mean, _usual(case, seed, count).get(name)):
                return f"{name}: over {count} draws results are off by {mean:+.2e} of themselves, {errors:.0f} errors"
        names = {name for name, errors in apart.items() if errors > DOUBTFUL}
        if not names:
            break
    return ""


def _is_usual(mean: float, slopes: Any) -> bool:
    """Return whether PyTorch's own results have at least half of this systematic error, with the same sign."""
    if slopes is None or _apart(slopes) <= DOUBTFUL:
        return False
    usual = float(slopes.mean())
    return mean * usual > 0 and abs(mean) <= 2 * abs(usual)


def _apart(slopes: Any) -> float:
    """Return how many standard errors the mean slope is from 0."""
    spread = float(slopes.std(ddof=1)) / np.sqrt(len(slopes))
    return float(abs(slopes.mean()) / max(spread, 1e-300))


@lru_cache(maxsize=64)
def _usual(case: Case, seed: int, count: int) -> Mapping[str, Any]:
    """Return the slopes of PyTorch's own implementation."""
    return _slopes(case, pytorch_of(case), seed, count)


def _slopes(case: Case, implementation: Implementation, seed: int, count: int) -> dict[str, Any]:
    """Return by output the slope of each draw: the factor, minus one, by which results are too large."""
    group = _group(case, seed)
    taken: dict[str, list[tuple[float, float]]] = {}
    for draw in draws_of(case, seed, count * group):
        ran = run(implementation, draw.tensors, draw.arguments)
        if ran.error or not comparable(ran.outputs, draw.expected):
            return {}
        for name, got in values_of(ran.outputs).items():
            expected = draw.expected.get(name)
            if expected is None or not narrow(expected.dtype):
                continue
            finite = np.isfinite(got) & np.isfinite(expected.values)
            wanted = reachable(expected)
            value, error = wanted[finite], (got - wanted)[finite]
            taken.setdefault(name, []).append((float((error * value).sum()), float((value**2).sum())))
    slopes = {name: _ratios(sums, group) for name, sums in taken.items()}
    least = {
        name: (STORED_SHARE if OPS[case.op].kept is not None else LEAST_SHARE)
        * UNIT_ROUNDOFF[draw.expected[name].dtype]
        for name in taken
    }
    return {
        name: expected
        for name, expected in slopes.items()
        if len(expected) == count and abs(np.mean(expected)) > least[name]
    }


def _ratios(sums: list[tuple[float, float]], group: int) -> Any:
    """Return the quotients of sums over groups whose denominators are positive.

    >>> _ratios([(1.0, 2.0), (2.0, 2.0), (0.0, 0.0), (0.0, 0.0)], 2)
    array([0.75])
    """
    above, below = np.asarray(sums)[: len(sums) // group * group].reshape(-1, group, 2).sum(axis=1).T
    return above[below > 0] / below[below > 0]


def _group(case: Case, seed: int) -> int:
    """Return how many draws are pooled for one slope: with few results, rounding hides the factor in one draw."""
    draw = next(iter(draws_of(case, seed, 1)), None)
    sizes = (
        [expected.values.size for expected in draw.expected.values() if narrow(expected.dtype)]
        if draw is not None
        else []
    )
    if draw is None or not sizes or not min(sizes):
        return 1
    elements = sum(tensor.numel() for tensor in draw.tensors.values())
    return int(max(1, min(-(-ENOUGH // min(sizes)), MOST_GROUPED, MOST_ELEMENTS // max(elements, 1))))


def narrow(dtype: str) -> bool:
    """Return whether `dtype` has so few bits that its rounding hides systematic errors."""
    return UNIT_ROUNDOFF.get(dtype, 0.0) > 2.0**-20


@lru_cache(maxsize=8)
def draws_of(case: Case, seed: int, count: int) -> tuple[Draw, ...]:
    """Return draws of normal inputs; none for exact operators and for operators that draw random numbers."""
    if OPS[case.op].draws or tolerance_of(case).kind in ("exact", "decomposition"):
        return ()
    input_sets = (drawn(case.op, arguments_of(case), (seed, "systematic", number), "normal") for number in range(count))
    return tuple(unbounded_draw(case, tensors, "normal") for tensors in input_sets if tensors is not None)
