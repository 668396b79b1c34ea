"""Ranges of results rounded once, or twice where an operator may store one intermediate in the output format."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.oracle.expected_results import SPREAD, Expected, arguments_of, sum_length, tolerance_of
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, arithmetic_roundoff, rounded, widened
from nearpeak.validation.oracle.sensitivity import Arrays

Ends = tuple[Any, Any]


def in_either_way(case: Case, expected: Mapping[str, Expected], tensors: Arrays) -> dict[str, Expected]:
    """Return the expected results with the ranges of both permitted ways: rounded once, or with a stored intermediate.

    A result between the two ranges is wrong: a norm whose mean lost bits has rows there.

    >>> from nearpeak.ops import case
    >>> from nearpeak.validation.oracle.float64_oracle import draw_inputs
    >>> asked = draw_inputs(case("rms_norm", rows=1, hidden=4, dtype="bf16"), 0, "normal")
    >>> [bool((low <= high).all()) for low, high in asked.expected["output"].ends]
    [True, True]
    """
    narrow = {
        name: output
        for name, output in expected.items()
        if UNIT_ROUNDOFF[output.dtype] > arithmetic_roundoff(output.dtype)
    }
    return {**expected, **{name: _with_ends(case, name, output, tensors) for name, output in narrow.items()}}


def _with_ends(case: Case, name: str, expected: Expected, tensors: Arrays) -> Expected:
    evaluate, arguments, numerics = OPS[case.op].kept, arguments_of(case), tolerance_of(case)
    assert evaluate is not None  # the caller checked it
    last_ratio = arithmetic_roundoff(expected.dtype) * numerics.ulp_count
    error_ratio = last_ratio + arithmetic_roundoff(expected.dtype) * SPREAD * np.sqrt(sum_length(numerics, arguments))

    def with_error(sign: float) -> Any:
        arrays = {key: widened(tensor).copy() for key, tensor in tensors.items()}
        with np.errstate(all="ignore"):
            results = evaluate(
                arrays, lambda x: rounded(x * (1 + sign * error_ratio), torch_format(expected.dtype)), **arguments
            )
        return results[name]

    once = _rounded_between(expected.values, expected.values, error_ratio, expected.dtype)
    twice = _rounded_between(with_error(-1.0), with_error(1.0), last_ratio, expected.dtype)
    return replace(expected, once=True, ends=(once, twice))


def _rounded_between(left: Any, right: Any, error_ratio: float, dtype: str) -> Ends:
    """Return the rounded ends of the range between two values that each have an error."""
    low, high = np.fmin(left, right), np.fmax(left, right)
    least, most = low - error_ratio * np.abs(low), high + error_ratio * np.abs(high)
    return rounded(least, torch_format(dtype)), rounded(most, torch_format(dtype))
