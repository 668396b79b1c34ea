"""Detection of wide inputs (such as fp32 slopes) that an implementation rounds to a narrower format before use."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.comparison.output_comparison import comparable, reachable, values_of
from nearpeak.validation.comparison.systematic_error import draws_of, narrow
from nearpeak.validation.oracle.expected_results import Expected, arguments_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats, unbounded_draw
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded, widened
from nearpeak.validation.running.implementation_run import Implementation, columns_dense, run

DRAWS = 12
"""Fresh draws, each of which gives one relative error for each examined number."""
MOST_LOOKED_AT = 4
"""Numbers of one input that are perturbed one by one."""
STEP = 2.0**-6
"""Relative perturbation, small enough for finite differences."""
MOST_OF_USUAL, LEAST_SHARE = 3.0, 0.5
"""Limits of the root mean square of the relative errors: over PyTorch's own, and in roundoffs of the results. A fault
exceeds that of PyTorch's row-major and column-major kernels, or of the former if it follows the rounding to bf16.
PyTorch's batch norm of channels-last fp16 and bf16 inputs stores scale and shift in 16 bits, with 1.0 to 5.3 times the
error of its other kernel; numbers rounded to bf16 give 6.2 to 11 times (batch norm, ALiBi; 14 shapes, 2026-11-28)."""
FOLLOWING_SLOPE, FOLLOWING_ERRORS = 0.5, 4.0
"""Least slope of the errors over the rounding errors of bf16, and its standard errors: numbers rounded to bf16 give
slopes of 0.8 to 1.3 at 5.5 to 280 standard errors, right results at most 3 standard errors from 0."""
LEAST_FOLLOWING = 4
"""Numbers that such a slope needs."""
MOST_NOISE_SHARE = 0.5
"""Most noise, in roundoffs, that rounding of the results may add to a usable relative error."""
MOST_RESULTS = 2**15
"""Results of a draw that are examined."""
MOST_GROUPED = 16
"""Draws pooled for one relative error, with the same numbers and other inputs redrawn, where results are few."""


def shared_fault(case: Case, implementation: Implementation, seed: int) -> str:
    """Return the input that was rounded to fewer digits than PyTorch uses; empty where none was.

    An fp32 slope rounded to bf16 moves each score by less than the bound of fp16 results. PyTorch rounds only the
    products with it to fp16; over fresh inputs the two are far apart.
    """
    specs = OPS[case.op].inputs(**arguments_of(case))
    sizes = {name: UNIT_ROUNDOFF.get(spec.dtype, 0.0) for name, spec in specs.items()}
    coarsest = max(sizes.values(), default=0.0)
    # Inputs in fp32 or fp64 beside narrower ones: they have digits that narrow results hide.
    for name in (name for name, unit in sizes.items() if 0 < unit <= UNIT_ROUNDOFF["fp32"] < coarsest):
        shares = _shares(case, implementation, seed, name)
        if not len(shares):
            continue
        usual, least = _size(_usual(case, seed, name, by_columns=False)), LEAST_SHARE * _unit(case, seed)
        if _size(shares) <= max(MOST_OF_USUAL * usual, least):
            continue
        most = MOST_OF_USUAL * _size(_usual(case, seed, name, by_columns=True))
        if _size(shares) > max(most, least) or _follows(shares):
            return f"results move as if {name} were off by {_size(shares):.2e} of itself; PyTorch's own by {usual:.2e}"
    return ""


def _size(shares: Any) -> float:
    return float(np.sqrt((shares[:, 0] ** 2).mean())) if len(shares) else 0.0


def _follows(shares: Any) -> bool:
    """Return whether the relative errors of the numbers are those of rounding to bf16.

    >>> numbers = 1 + np.arange(20) / 70
    >>> _follows(np.stack([rounded(numbers, torch_format("bf16")) / numbers - 1, numbers], 1))
    True
    >>> _follows(np.stack([0.01 * (-1.0) ** np.arange(20), numbers], 1))
    False
    """
    share, number = shares.T
    of_bf16 = rounded(number, torch_format("bf16")) / number - 1
    size = float(of_bf16 @ of_bf16)
    if not size or len(share) < LEAST_FOLLOWING:
        return False
    slope = float(share @ of_bf16) / size
    left = share - slope * of_bf16
    error = np.sqrt(left @ left / (len(share) - 1) / size)
    return bool(slope > max(FOLLOWING_SLOPE, FOLLOWING_ERRORS * error))


@lru_cache(maxsize=64)
def _usual(case: Case, seed: int, name: str, *, by_columns: bool) -> Any:
    right = OPS[case.op].torch_call
    call = columns_dense(right, declared_formats(case)) if by_columns else right
    return _shares(case, Implementation(name="PyTorch", call=call), seed, name)


def _shares(case: Case, implementation: Implementation, seed: int, name: str) -> Any:
    """Return the apparent relative error of each number, and the number, for each group of draws with little noise."""
    shares: list[Any] = []
    for group in _groups(case, seed, name):
        numbers = widened(group[0][0].tensors[name]).reshape(-1)[_places(group[0][0], name)]
        above, below, noise = (np.zeros(len(group[0][1])) for _ in range(3))
        for draw, directions, units in group:
            ran = run(implementation, draw.tensors, draw.arguments)
            if ran.error or not comparable(ran.outputs, draw.expected):
                return np.zeros((0, 2))
            errors = _joined(values_of(ran.outputs)[k] - reachable(expected) for k, expected in _narrow(draw))
            above, below = above + directions @ errors, below + (directions**2).sum(axis=1)
            noise = noise + ((directions * units) ** 2).sum(axis=1)
        with np.errstate(all="ignore"):
            clear = np.sqrt(noise) <= MOST_NOISE_SHARE * _unit(case, seed) * below
            shares.append(np.stack([above / below, numbers], 1)[clear & (below > 0)])
    return np.concatenate([np.zeros((0, 2)), *shares])


def _unit(case: Case, seed: int) -> float:
    """Return the roundoff of the coarsest result."""
    draw = next(iter(draws_of(case, seed, DRAWS)), None)
    return max((UNIT_ROUNDOFF[output.dtype] for _, output in _narrow(draw)), default=0.0) if draw is not None else 0.0


def _narrow(draw: Draw) -> list[tuple[str, Expected]]:
    return [(name, expected) for name, expected in draw.expected.items() if narrow(expected.dtype)]


Response = tuple[Draw, Any, Any]
"""A draw, the derivatives of its results by each examined number, and the rounding errors of the results."""


@lru_cache(maxsize=16)
def _groups(case: Case, seed: int, name: str) -> tuple[tuple[Response, ...], ...]:
    """Return groups of draws with the same numbers in `name`, large enough to show its relative error."""
    try:
        first = [_response(draw, name) for draw in draws_of(case, seed, DRAWS)]
    except MeasureError:  # the reference is not defined on perturbed inputs
        return ()
    if not first or not first[0][1].size:
        return ()
    noises = [_noise(response) / _unit(case, seed) for response in first]
    count = int(max(1, min(MOST_GROUPED, np.ceil((np.median(noises) / MOST_NOISE_SHARE) ** 2 * 1.5))))
    others = draws_of(case, seed, DRAWS * count)
    return tuple(
        (
            response,
            *(
                _response(unbounded_draw(draw.case, {**draw.tensors, name: response[0].tensors[name]}, "normal"), name)
                for draw in others[number + DRAWS :: DRAWS]
            ),
        )
        for number, response in enumerate(first)
    )


def _noise(response: Response) -> float:
    """Return the noise that rounding of the results adds to the best-determined relative error."""
    _, directions, units = response
    with np.errstate(all="ignore"):
        blur = np.sqrt(((directions * units) ** 2).sum(axis=1)) / (directions**2).sum(axis=1)
    return float(np.nanmin(np.where(np.isfinite(blur), blur, np.inf)))


def _response(draw: Draw, name: str) -> Response:
    results, directions = _values(draw), []
    for place in _places(draw, name):
        changed = {key: tensor.clone() for key, tensor in draw.tensors.items()}
        changed[name].view(-1)[place] *= 1 + STEP
        directions.append(np.nan_to_num((_values(unbounded_draw(draw.case, changed, "normal")) - results) / STEP))
    units = _joined(UNIT_ROUNDOFF[output.dtype] * np.abs(output.values) / 2 for _, output in _narrow(draw))
    return draw, np.array(directions), units


def _places(draw: Draw, name: str) -> list[int]:
    """Return the positions of the examined numbers."""
    count = draw.tensors[name].numel()
    return sorted({number * (count - 1) // (MOST_LOOKED_AT - 1) for number in range(MOST_LOOKED_AT)} if count else ())


def _values(draw: Draw) -> Any:
    return _joined(output.values for _, output in _narrow(draw))


def _joined(parts: Iterable[Any]) -> Any:
    """Return all results as one vector, thinned evenly where there are very many."""
    values = np.concatenate([*(np.ravel(part) for part in parts), np.array([])])
    step = -(-values.size // MOST_RESULTS) or 1
    return np.nan_to_num(values[::step], nan=0.0, posinf=0.0, neginf=0.0)
