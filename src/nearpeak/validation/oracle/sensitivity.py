"""Sensitivity of results to input errors: the oracle evaluated on perturbed inputs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nearpeak.errors import MeasureError
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF

PROBES = 8
"""Times the oracle is evaluated beside the inputs, to learn how strongly each result depends on them."""
Arrays = Mapping[str, Any]
Reference = Callable[[dict[str, Any]], dict[str, Any]]
Stored = Callable[[Arrays, Callable[[Any, str], Any]], dict[str, Any]]


def evaluated(reference: Reference, arrays: Arrays, where: str) -> dict[str, Any]:
    """Return the results of `reference` on copies of `arrays`.

    Raises:
        MeasureError: it fails; `where` says on what.
    """
    try:
        with np.errstate(all="ignore"):
            results = reference({name: array.copy() for name, array in arrays.items()})
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise MeasureError(f"{where}: the reference fails: {error}; nothing can be judged by it") from error
    return {name: np.asarray(value) for name, value in results.items() if value is not None}


def moved(reference: Reference, probes: Iterable[Arrays], exact: Arrays, where: str) -> dict[str, Any]:
    """Return by how much each result moves, at most over the probes: inputs beside those that gave `found`."""
    most = {name: np.zeros(np.shape(values)) for name, values in exact.items()}
    for beside in probes:
        for name, values in evaluated(reference, beside, where).items():
            if values.shape == exact[name].shape:
                with np.errstate(all="ignore"):
                    difference = np.where(values == exact[name], 0.0, np.abs(values * 1.0 - exact[name] * 1.0))
                    most[name] = np.fmax(most[name], difference)
    return most


def probes(arrays: Arrays, step: float, *, whole: bool) -> Iterator[dict[str, Any]]:
    """Give inputs whose relative errors are `step` with random signs.

    A probe sees the root of the sum of squares of the products of derivative and input: how rounding errors of a
    stable algorithm reach the result. Where two large terms cancel, errors of all inputs may cancel in every probe, by
    luck; those of one input at a time do not, so that each is also moved alone, by half as much: it bounds from below.

    Args:
        whole: each element moves by `step` of the input's largest, as algorithms that are stable by norm allow.
    """
    random = np.random.default_rng(20)
    for _ in range(PROBES):
        yield {name: _nudged(random, array, step, whole=whole) for name, array in arrays.items()}
    floats = [name for name, array in arrays.items() if array.dtype.kind in "fc"]
    for name in floats if len(floats) > 1 and not whole else ():
        yield {**arrays, name: _nudged(random, arrays[name], step / 2, whole=whole)}


def shifts(arrays: Arrays, step: float) -> Iterator[dict[str, Any]]:
    """Give inputs one of which is `step` of itself larger everywhere.

    In a long sum of one sign, errors with random signs cancel and rounding errors need not: they may have a bias.
    """
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and array.size > 1:
            yield {**arrays, name: array * (1.0 + step)}


def _nudged(random: Any, array: Any, step: float, *, whole: bool) -> Any:
    if array.dtype.kind not in "fc" or not array.size:
        return array
    signs = random.choice((-1.0, 1.0), array.shape)
    if whole:
        return array + step * signs * np.abs(array).max()
    return array * (1.0 + step * signs)


def stored_errors(stored: Stored, arrays: Arrays, exact: Arrays) -> tuple[dict[str, Any], float]:
    """Return the root mean square error of results when every stored intermediate is rounded, as probes show it.

    An element's is at least that of all: iterations spread each rounding over the whole result. Beside it, the
    roundoff of the coarsest format that was stored.
    """
    random, squares = np.random.default_rng(21), {name: np.zeros(np.shape(values)) for name, values in exact.items()}
    coarsest_ratio = 0.0

    def store(x: Any, dtype: str) -> Any:
        nonlocal coarsest_ratio
        coarsest_ratio = max(coarsest_ratio, UNIT_ROUNDOFF[dtype])
        return x * (1.0 + UNIT_ROUNDOFF[dtype] * random.uniform(-1.0, 1.0, x.shape))

    for _ in range(PROBES):
        for name, values in stored({key: array.copy() for key, array in arrays.items()}, store).items():
            squares[name] += (values - exact[name]) ** 2 / PROBES
    return {
        name: np.sqrt(np.fmax(mean_square, mean_square.mean() if mean_square.size else 0.0))
        for name, mean_square in squares.items()
    }, coarsest_ratio
