"""Element-wise and row-wise comparison of outputs with the oracle: masks of NaN and infinity, errors over bounds."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import PASS, CheckResult, WorstElement
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.oracle.expected_results import Expected
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded, widened

LEAST_GROUP = 32
"""Elements below which the norm of a row shows no more than its elements."""


def values_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return torch tensors as float64 and integer arrays."""
    return {name: widened(tensor) for name, tensor in outputs.items()}


def comparable(outputs: Mapping[str, Any], expected: Mapping[str, Expected]) -> bool:
    """Return whether every expected output exists with the right shape."""
    return all(name in outputs and outputs[name].shape == np.shape(output.values) for name, output in expected.items())


def mask_fault(got: Any, expected: Expected, *, together: bool = False) -> str:
    """Return where NaN and infinities differ from the oracle's; empty where they agree.

    A value next to the largest finite number of its format may have overflowed or not.

    Args:
        together: treat NaN and infinities alike, as summation order decides which of them an infinite input gives.
    """
    if got.dtype.kind not in "fc":
        return ""
    together = together or bool(np.isinf(expected.rounded).any() and np.isfinite(expected.values).all())
    free = np.isinf(expected.bound) | _at_the_edge(expected)
    ends = partial(_not_finite, largest=_end(expected.dtype))
    tests = (("what is finite", ends),) if together else (("NaN", np.isnan), ("infinity", np.isinf))
    for name, test in tests:
        wrong = (test(got) != test(expected.rounded)) & ~free
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name} differs at {where}: got {got[where]}, expected {expected.rounded[where]}"
    if together:
        return ""
    signs = np.isinf(got) & np.isinf(expected.rounded) & (got != expected.rounded)
    return f"{int(signs.sum())} infinities have the wrong sign" if signs.any() and got.dtype.kind == "f" else ""


def _not_finite(array: Any, largest: float) -> Any:
    return ~(np.abs(array) < largest)


@cache
def _end(dtype: str) -> float:
    """Return the magnitude that stands for infinity in a format: the largest number of formats without infinity.

    >>> _end("fp8_e4m3"), _end("bf16")
    (448.0, inf)
    """
    import torch

    if dtype not in UNIT_ROUNDOFF:
        return float("inf")
    has_none = not torch.tensor(float("inf")).to(torch_format(dtype)).float().isinf()
    return float(torch.finfo(torch_format(dtype)).max) if has_none else float("inf")


def _at_the_edge(expected: Expected) -> Any:
    """Return which elements have a bound that reaches from finite to infinite values; a bound of 0 never does."""
    import torch

    if expected.dtype not in UNIT_ROUNDOFF:
        return np.zeros(expected.values.shape, bool)
    largest = torch.finfo(torch_format(expected.dtype)).max
    with np.errstate(all="ignore"):
        return (
            np.isfinite(expected.values)
            & (expected.bound > 0)
            & (np.abs(np.abs(expected.values) - largest) <= expected.bound)
        )


def ratios(got: Any, expected: Expected) -> Any:
    """Return |got - expected| over the bound, element by element; 0 where they are equal or neither is finite."""
    if got.dtype.kind not in "fc":
        difference = np.abs(got.astype(np.float64) - expected.values.astype(np.float64))
        exact = got == expected.values
    else:
        with np.errstate(all="ignore"):
            difference = np.abs(got - expected.values)
        exact = (got == expected.rounded) | ~np.isfinite(got) | ~np.isfinite(expected.rounded)
    with np.errstate(all="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / expected.bound)
    ratio = np.where(exact, np.where(np.isfinite(ratio), np.minimum(ratio, 1.0), 0.0), ratio)
    return np.where(~exact & _twice_rounded(got, expected), np.fmax(ratio, TWICE), ratio) if expected.once else ratio


TWICE = 1.5
"""Ratio given to a result within the bound that is not the rounding of any value the exact sum may have."""


def _twice_rounded(got: Any, expected: Expected) -> Any:
    """Return for which elements no value near the sum rounds to `got`: rounding is monotone, so the ends suffice."""
    dtype = torch_format(expected.dtype)
    ends = expected.ends or (tuple(rounded(expected.values + sign * expected.inner, dtype) for sign in (-1.0, 1.0)),)
    return np.all([(got < low) | (got > high) for low, high in ends], axis=0)


def worst_of(got: Mapping[str, Any], expected: Mapping[str, Expected]) -> WorstElement | None:
    """Return the element with the largest ratio over all outputs; none where nothing is compared."""
    candidates = []
    for name, output in expected.items():
        ratio = ratios(got[name], output)
        if ratio.size:
            where = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
            candidates.append((float(ratio[where]), name, where))
    if not candidates:
        return None
    ratio_there, name, where = max(candidates, key=lambda entry: entry[0])
    output = expected[name]
    return WorstElement(
        output=name,
        offset=where,
        got=repr(got[name][where].item()),
        expected=repr(output.values[where].item()),
        bound=repr(float(output.bound[where])),
        bound_ratio=ratio_there,
    )


def compared(check: str, got: Mapping[str, Any], expected: Mapping[str, Expected], where: str) -> CheckResult:
    """Return the result of an element-wise comparison, masks included."""
    for name, output in expected.items():
        fault = mask_fault(got[name], output)
        if fault:
            return CheckResult(check=check, status="NUMERIC_FAIL", reason=f"{where}: {name}: {fault}")
    worst = worst_of(got, expected)
    if worst is not None and worst.bound_ratio > 1:
        difference = f"{where}: {worst.output}{list(worst.offset)} is {worst.got}, expected {worst.expected}"
        output, value = expected[worst.output], got[worst.output][worst.offset]
        reason = f"{difference} within {float(worst.bound):.3g}"
        if output.once and np.abs(value - output.values[worst.offset]) <= output.bound[worst.offset]:
            reason = (
                f"{difference}; no value within the errors of fp32 rounds to that in {output.dtype}: "
                "one on the way had fewer bits"
            )
        return CheckResult(check=check, status="NUMERIC_FAIL", reason=reason, worst=worst)
    return CheckResult(check=check, status=PASS, worst=worst)


def pooled_errors(answers: Sequence[tuple[Any, Expected]]) -> tuple[float, float]:
    """Return the pooled error of all rounds over its expected size, and the limit of correct results.

    It is 0 where each round has enough elements by itself, or all together too few. Correct results give 1 or less.
    """
    parts = [
        (got - expected.values, expected.spread)
        for got, expected in answers
        if got.dtype.kind == "f" and np.any(expected.bound)
    ]
    error, limit = (np.concatenate([np.ravel(part[place]) for part in parts] or [np.zeros(0)]) for place in (0, 1))
    finite = np.isfinite(error) & np.isfinite(limit) & (limit > 0)
    if finite.sum() < LEAST_GROUP or any(got.size >= LEAST_GROUP for got, _ in answers):
        return 0.0, 1.0
    return float(np.sqrt(((error[finite] / limit[finite]) ** 2).mean())), float(_slack(finite.sum()))


def _slack(count: Any) -> Any:
    return np.sqrt(1.0 + 6.0 / np.sqrt(count))


def _effective(spread: Any) -> Any:
    """Return the effective number of elements of each row: where few are large, the others do not matter.

    >>> _effective(np.array([[2.0, 2.0, 2.0, 2.0], [9.0, 0.0, 0.0, 0.0]])).tolist()
    [4.0, 1.0]
    """
    square = (spread / np.maximum(spread.max(axis=1, keepdims=True), 1e-300)) ** 2
    return np.maximum(square.sum(axis=1) ** 2 / np.maximum((square**2).sum(axis=1), 1e-300), 1.0)


def group_fault(got: Any, expected: Expected) -> str:
    """Return which row's error norm exceeds the limit of correct results; empty where none does.

    The mean square of n rounding errors lies within six standard deviations of its expectation; a row of few
    elements is judged by its elements alone.
    """
    if got.dtype.kind != "f" or got.ndim == 0 or not got.size or not np.any(expected.bound):
        return ""
    rows, limit = (array.reshape(-1, array.shape[-1]) for array in (got - reachable(expected), expected.spread))
    finite = np.isfinite(rows) & np.isfinite(limit)
    if rows.shape[1] < LEAST_GROUP:
        rows, limit, finite = (array.reshape(1, -1) for array in (rows, limit, finite))
    if rows.shape[1] < LEAST_GROUP:
        return ""
    error, allowed = (np.sqrt((np.where(finite, array, 0.0) ** 2).sum(axis=1)) for array in (rows, limit))
    most = _slack(_effective(np.where(finite, limit, 0.0))) * allowed
    if not (error > most).any():
        return ""
    row = int(np.argmax(error / np.maximum(most, 1e-300)))
    return f"row {row}: norm of the error {error[row]:.3g}, correct results reach {most[row]:.3g}"


def reachable(expected: Expected) -> Any:
    """Return the expected values, clipped to the largest number of the format where it saturates."""
    largest = np.abs(expected.rounded).max(initial=0.0, where=np.isfinite(expected.rounded))
    beyond = (
        np.isfinite(expected.rounded)
        & (np.abs(expected.values) > np.abs(expected.rounded))
        & (np.abs(expected.rounded) == largest)
    )
    return np.where(beyond, expected.rounded, expected.values)


def relative_norm(got: Any, expected: Expected) -> float:
    """Return the largest norm of a row's error over the norm of its expected values; 0 where there is none."""
    if got.dtype.kind != "f" or got.ndim == 0 or not got.size:
        return 0.0
    error, size = (array.reshape(-1, array.shape[-1]) for array in (got - expected.values, expected.values * 1.0))
    finite = np.isfinite(error) & np.isfinite(size)
    norms = [np.sqrt((np.where(finite, array, 0.0) ** 2).sum(axis=1)) for array in (error, size)]
    some = norms[1] > 0
    return float((norms[0][some] / norms[1][some]).max(initial=0.0))


def bias_z(got: Any, expected: Expected) -> float:
    """Return the mean error over its standard error, in units of the bound; 0 where there are few elements."""
    if got.dtype.kind != "f" or got.size < LEAST_GROUP or not np.any(expected.bound):
        return 0.0
    with np.errstate(all="ignore"):
        share = ((got - expected.values) / expected.bound).ravel()
    share = share[np.isfinite(share)]
    size = float(np.sqrt((share**2).mean())) if share.size else 0.0
    return float(share.mean() / size * np.sqrt(share.size)) if size else 0.0


def last_places(got: Any, expected: Expected) -> Any:
    """Return the distance of finite results to the oracle in units of the output's last place."""
    unit = UNIT_ROUNDOFF.get(expected.dtype)
    if unit is None or got.dtype.kind != "f":
        return np.zeros(0)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(expected.values)))
        distance = np.abs(got - expected.values) / (2 * unit * 2.0**exponent)
    return distance[np.isfinite(distance)]
