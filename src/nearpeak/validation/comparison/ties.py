"""Tie-breaking: brings equally right positions, signs and orders to the oracle's choice before a comparison."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.oracle.expected_results import arguments_of, sum_length, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, answers, declared_formats
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, format_name, widened
from nearpeak.validation.oracle.sensitivity import Arrays
from nearpeak.validation.running.implementation_run import imported_torch


def with_ties_broken(
    case: Case, tensors: Arrays, outputs: Mapping[str, Any], wanted: Mapping[str, Any], draw: Draw | None = None
) -> dict[str, Any]:
    """Return `outputs` with signs, order and positions as in `wanted` where they are equally right.

    Args:
        case: of the forward pass.
        tensors: inputs by name.
        outputs: torch tensors by name.
        wanted: arrays by name.
        draw: the draw of these inputs, if they are one, whose error bounds are cached.
    """
    results, picks = canonical(case, outputs, wanted), tolerance_of(case).picks
    for name in picks.keys() & results.keys() & wanted.keys():
        values = ranked(case, tensors, picks[name])
        apart = _apart(case, tensors, picks[name]) if draw is None else _apart_in(draw, picks[name])
        results[name] = matched_ties(results[name], values, wanted[name], apart)
    as_right = OPS[case.op].as_right
    fits = results.keys() >= wanted.keys()
    return results if as_right is None or not fits else as_right(tensors, results, wanted, **arguments_of(case))


def canonical(case: Case, outputs: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return `outputs` with the oracle's signs and order; unchanged where their shapes differ."""
    chosen = OPS[case.op].canonical
    fits = outputs.keys() == wanted.keys() and all(outputs[k].shape == np.shape(wanted[k]) for k in wanted)
    if chosen is None or not fits:
        return dict(outputs)
    # A kernel may return its outputs in any order of names.
    return chosen({name: outputs[name] for name in wanted}, **arguments_of(case))


@lru_cache(maxsize=24)
def _apart_in(draw: Draw, source: str) -> Any:
    return _apart(draw.case, draw.tensors, source)


def _apart(case: Case, tensors: Arrays, source: str) -> Any:
    """Return the error bound of each ranked value that an implementation computes; none where it is an input.

    The bounds are those of the operator's tolerance, in the format of its results.
    """
    make, numerics = OPS[case.op].ranked, tolerance_of(case)
    if source in tensors or make is None or numerics.kind == "exact":
        return None
    arguments = arguments_of(case)
    dtype = next(spec for spec in declared_formats(case).values() if format_name(spec) in UNIT_ROUNDOFF)
    length = sum_length(numerics, arguments)
    expected = answers(
        lambda arrays: make(arrays, **arguments), tensors, {source: dtype}, numerics, length, case.label()
    )
    return imported_torch().as_tensor(np.nan_to_num(expected[source].bound, nan=np.inf))


def matched_ties(positions: Any, values: Any, wanted: Any, apart: Any = None) -> Any:
    """Return `positions` in the last dimension of `values`, replaced by the wanted ones where the values are equal.

    If values have errors of at most `apart`, the value at a rank is off by at most the row's largest error, because
    sorting is 1-Lipschitz in the maximum norm, and the named value by its own error. Where a value is unbounded, any
    existing positions of its row are accepted.

    A row that names a position twice stays unchanged: another position is missing.

    >>> import torch
    >>> values = torch.tensor([[3.0, 5.0, 5.0]])
    >>> matched_ties(torch.tensor([[2, 0]]), values, [[1, 0]]), matched_ties(torch.tensor([[2, 2]]), values, [[1, 2]])
    (tensor([[1, 0]]), tensor([[2, 2]]))
    >>> near, apart = torch.tensor([[3.0, 3.1, 9.0]] * 2), torch.full((2, 3), 0.1)
    >>> matched_ties(torch.tensor([[0, 1], [0, 3]]), near, [[1, 0]] * 2, apart)
    tensor([[1, 0],
            [1, 3]])
    """
    torch = imported_torch()
    wanted = torch.as_tensor(np.array(wanted)).to(positions.dtype)
    if positions.shape != wanted.shape:
        return positions
    flat = positions.dim() < values.dim()
    got, want = (array[..., None] if flat else array for array in (positions, wanted))
    inside, right = (array.clamp(0, values.shape[-1] - 1).long() for array in (got, want))
    exists = inside == got
    ordered = got.sort(-1).values
    twice = ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any(-1, keepdim=True)
    there, aim = values.gather(-1, inside), values.gather(-1, right)
    same = (there == aim) & (right == want)
    if apart is not None:
        known = torch.isfinite(apart)
        largest = torch.where(known, apart, torch.zeros_like(apart)).amax(-1, keepdim=True)
        same |= ((there - aim).abs() <= apart.gather(-1, inside) + largest) & (right == want)
        open_ = ~known.all(-1, keepdim=True)
        same, exists = same | open_, exists | (open_ & (got == NOWHERE))
    return torch.where(same & exists & ~twice, want, got).view(positions.shape)


NOWHERE = -1
"""The position that stands for no further value."""


def ranked(case: Case, tensors: Arrays, source: str) -> Any:
    """Return the values that positions refer to: the input `source`, or values that the operator computes."""
    if source in tensors:
        return tensors[source]
    make = OPS[case.op].ranked
    assert make is not None  # a tolerance names inputs, or results of `ranked`
    with np.errstate(all="ignore"):
        values = make({name: widened(tensor) for name, tensor in tensors.items()}, **arguments_of(case))
    return imported_torch().as_tensor(values[source])
