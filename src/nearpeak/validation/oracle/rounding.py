"""Stochastic arithmetic: a reference evaluated with a rounding error in each arithmetic step."""

# Errors of inputs do not show what cancels inside: the gradient of v / |v| is 0 in one dimension, and an implementation
# subtracts two equal numbers, each rounded. Stochastic arithmetic shows it without a formula for each operator
# (Vignes 2004, "Discrete stochastic arithmetic for validating results of numerical software").

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Self

import numpy as np

from nearpeak.errors import MeasureError
from nearpeak.validation.oracle.sensitivity import PROBES, Arrays, Reference, evaluated

EXACT = frozenset(
    {
        np.maximum, np.minimum, np.fmax, np.fmin, np.negative, np.positive, np.absolute, np.fabs, np.sign, np.floor,
        np.ceil, np.rint, np.trunc, np.copysign, np.ldexp, np.frexp, np.conjugate, np.heaviside, np.nextafter,
        np.spacing,
    }
)  # fmt: skip
"""Functions of NumPy whose results of numbers in a format are numbers in that format."""
SUMMED = frozenset({"einsum", "dot", "inner", "outer", "tensordot", "vdot", "interp", "convolve"})
"""Functions that compute without going through those that an array can watch."""
Nudge = Callable[[Any], Any]
_ARRAY = np.ndarray
_NUMBERS = (np.ndarray, np.floating, np.complexfloating)
DRAWN = 2**12
"""Random numbers that are drawn at a time."""


class _Watched(np.ndarray):
    """An array each of whose arithmetic results is nudged: by what, a class made for one evaluation says."""

    @staticmethod
    def nudge(values: Any) -> Any:
        """Return what a step makes of its exact result."""
        return values

    follows = False
    """Whether `nudge` wants to know which function its values are of, and says when nobody looks at what follows."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Return what the function gives of plain arrays, nudged where it computes."""
        if out is not None:
            options["out"] = tuple(map(_plain, out))
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        result = function(
            *[array.view(_ARRAY) if isinstance(array, _Watched) else array for array in inputs], **options
        )
        if method == "at" or result is None:
            return result
        if out is None and not isinstance(result, tuple):
            return self._of(result, ufunc, method, exact=ufunc in EXACT)
        nudged_results = tuple(
            self._of(array, ufunc, method, exact=ufunc in EXACT)
            for array in (result if isinstance(result, tuple) else (result,))
        )
        if out is not None:
            for target, array in zip(out, nudged_results, strict=True):
                _plain(target)[...] = _plain(array)
            nudged_results = out
        return nudged_results if isinstance(result, tuple) else nudged_results[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return what the function gives; what it computes out of sight is nudged at its end."""
        result = super().__array_function__(function, types, args, kwargs)
        if result is NotImplemented or not isinstance(result, np.ndarray):
            return result
        return self._of(_plain(result), function, "__call__", exact=function.__name__ not in SUMMED)

    def _of(self, result: Any, function: Any, method: str, *, exact: bool) -> Any:
        if type(result) is not _ARRAY:
            if not isinstance(result, _NUMBERS):
                return result
            result = np.asarray(result)
        kind = type(self)
        nudge: Any = kind.nudge
        if result.dtype.kind not in "fc" or (kind.follows and nudge.is_done):
            return result
        if not exact:
            result = np.asarray((nudge.named(_name(function, method)) if kind.follows else nudge)(result))
        return result.view(kind)

    def __reduce__(self) -> Any:
        """Refuse to be kept: what is watched lives during one evaluation."""
        raise TypeError("a watched array is not kept")

    def __deepcopy__(self, memo: Any) -> Self:
        """Return a copy that is watched too."""
        return self.copy()


@cache
def _name(function: Any, method: str) -> str:
    """Return what a function of NumPy is called: `add`, `add.reduce`."""
    return str(function.__name__ if method == "__call__" else f"{function.__name__}.{method}")


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, _Watched) else array


def erring(reference: Reference, arrays: Arrays, exact: Arrays, where: str, nudge: Nudge) -> dict[str, Any]:
    """Return by how much each result moves, at most over the probes, when each step of `reference` is nudged.

    A reference that takes plain arrays only, or leaves NumPy, does not move: errors of its inputs judge it.

    Args:
        reference: gives results by name.
        arrays: its inputs, exact.
        found: its results on them.
        where: what is judged, for errors.
        nudge: what a step makes of its exact result.
    """
    most = {name: np.zeros(np.shape(values)) for name, values in exact.items()}
    for _ in range(PROBES):
        try:
            results = nudged(reference, arrays, where, nudge)
        except MeasureError:
            return most
        for name, values in results.items():
            if values.shape == most[name].shape and values.dtype.kind in "fc":
                with np.errstate(all="ignore"):
                    moved = np.where(values == exact[name], 0.0, np.abs(values - exact[name]))
                most[name] = np.fmax(most[name], moved)
    return most


def nudged(reference: Reference, arrays: Arrays, where: str, nudge: Nudge) -> dict[str, Any]:
    """Return the results of `reference` on `arrays` when each step of it is nudged.

    Raises:
        MeasureError: it fails, or takes plain arrays only.
    """
    # A class holds it, not each array, which would have to hand it on, and knows what it is: what either costs is paid
    # millions of times.
    held = {"nudge": staticmethod(nudge), "follows": hasattr(nudge, "named")}
    watched = type("_Nudged", (_Watched,), held)
    watched_arrays = {
        name: array.view(watched) if array.dtype.kind in "fc" else array for name, array in arrays.items()
    }
    return {name: _plain(array) for name, array in evaluated(reference, watched_arrays, where).items()}


def rounding(step: float) -> Nudge:
    """Return what errs by `step` of each result, with random signs.

    >>> float(abs(rounding(0.5)(np.array([4.0]))[0] - 4.0))
    2.0
    """
    factors = _Drawn(22, np.array([1.0 - step, 1.0 + step]))
    return lambda values: values * factors.of(np.shape(values))


def underflow(half_step: float, normal: float) -> Nudge:
    """Return what errs by `half_step`, or vanishes, where results are below the smallest `normal` number.

    >>> nudge = underflow(2.0**-25, 2.0**-14)
    >>> float(nudge(np.array([1.0]))[0]), float(abs(nudge(np.array([2.0**-20]))[0] - 2.0**-20)) == 2.0**-25
    (1.0, True)
    """
    signs = _Drawn(23, np.array([-1.0, 1.0]))

    def nudge(values: Any) -> Any:
        size = np.abs(values)
        error = np.where(size < normal, np.minimum(size, half_step), 0.0)
        return values + error * signs.of(np.shape(values))

    nudge.of_stored = True  # type: ignore[attr-defined]  # what is kept in the format vanishes too
    return nudge


def stored_by(array: Any) -> Nudge | None:
    """Return what a watched array's evaluation does to numbers that another framework keeps; none where nothing."""
    nudge = getattr(type(array), "nudge", None)
    return nudge if getattr(nudge, "of_stored", False) else None


class _Drawn:
    """One of two numbers for each element: what `random.choice` draws, many at a time, as most arrays are small."""

    def __init__(self, seed: int, either: Any) -> None:
        self._random, self._either, self._left = np.random.default_rng(seed), either, either[:0]

    def of(self, shape: tuple[int, ...]) -> Any:
        """Return what is drawn next, in that shape."""
        count = prod(shape)
        if count > len(self._left):
            fresh = self._random.integers(0, 2, max(DRAWN, count - len(self._left)))
            self._left = np.concatenate([self._left, self._either[fresh]])
        factors, self._left = self._left[:count], self._left[count:]
        return factors.reshape(shape)
