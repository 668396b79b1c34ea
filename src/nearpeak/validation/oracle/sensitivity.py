"""Sensitivity of results to input errors: the oracle evaluated on perturbed inputs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nearpeak.errors import MeasureError
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF

PROBES = 8
"""Evaluations of the oracle on perturbed inputs."""
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
    """Return the largest change of each result over the probes: perturbed inputs of the `exact` results."""
    most = {name: np.zeros(np.shape(values)) for name, values in exact.items()}
    for beside in probes:
        for name, values in evaluated(reference, beside, where).items():
            if values.shape == exact[name].shape:
                with np.errstate(all="ignore"):
                    difference = np.where(values == exact[name], 0.0, np.abs(values * 1.0 - exact[name] * 1.0))
                    most[name] = np.fmax(most[name], difference)
    return most


def probes(arrays: Arrays, step: float, *, whole: bool) -> Iterator[dict[str, Any]]:
    """Yield inputs with relative errors of `step` and random signs.

    A probe shows the root of the sum of squares of derivative times input: how rounding errors of a stable algorithm
    reach the result. Where two large terms cancel, errors of all inputs may cancel in every probe by chance; those of
    one input do not, so that each is also perturbed alone, by half as much, as a lower bound.

    Args:
        whole: perturb each element by `step` of the input's largest, as algorithms that are stable in norm allow.
    """
    random = np.random.default_rng(20)
    for _ in range(PROBES):
        yield {name: _nudged(random, array, step, whole=whole) for name, array in arrays.items()}
    floats = [name for name, array in arrays.items() if array.dtype.kind in "fc"]
    for name in floats if len(floats) > 1 and not whole else ():
        yield {**arrays, name: _nudged(random, arrays[name], step / 2, whole=whole)}


def shifts(arrays: Arrays, step: float) -> Iterator[dict[str, Any]]:
    """Yield inputs of which one is larger by the relative `step` everywhere.

    In a long sum of one sign, errors with random signs cancel, while rounding errors may be biased.
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
    """Return the root mean square error of results when every stored intermediate is rounded, over the probes.

    An element's error is at least the mean over all, as iterations spread each rounding over the whole result. The
    second value is the roundoff of the coarsest stored format.
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
