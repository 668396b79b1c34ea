"""Stochastic arithmetic: a reference evaluated with a rounding error in each arithmetic step."""

# Input errors do not show internal cancellation: the gradient of v / |v| is 0 in one dimension, and an implementation
# subtracts two equal rounded numbers. Stochastic arithmetic shows it without a formula for each operator (Vignes 2004,
# "Discrete stochastic arithmetic for validating results of numerical software").

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
"""NumPy functions whose results are exact in the format of their arguments."""
SUMMED = frozenset({"einsum", "dot", "inner", "outer", "tensordot", "vdot", "interp", "convolve"})
"""NumPy functions that compute without calling ufuncs that an array subclass can intercept."""
Nudge = Callable[[Any], Any]
_ARRAY = np.ndarray
_NUMBERS = (np.ndarray, np.floating, np.complexfloating)
DRAWN = 2**12
"""Random numbers that are drawn at a time."""


class _Watched(np.ndarray):
    """An array whose arithmetic results are perturbed, by the `nudge` of a subclass made for one evaluation."""

    @staticmethod
    def nudge(values: Any) -> Any:
        """Return the perturbed result of a step."""
        return values

    follows = False
    """Whether `nudge` is a `_Step`, which needs the function's name and states when later steps may be plain."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Return the ufunc's results on plain arrays, perturbed if it is not exact."""
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
        """Return the function's result, perturbed at its end if it does not call ufuncs."""
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
        """Refuse pickling: a watched array lives during one evaluation only."""
        raise TypeError("a watched array is not kept")

    def __deepcopy__(self, memo: Any) -> Self:
        """Return a copy that is watched too."""
        return self.copy()


@cache
def _name(function: Any, method: str) -> str:
    """Return the name of a NumPy function: `add`, `add.reduce`."""
    return str(function.__name__ if method == "__call__" else f"{function.__name__}.{method}")


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, _Watched) else array


def erring(reference: Reference, arrays: Arrays, exact: Arrays, where: str, nudge: Nudge) -> dict[str, Any]:
    """Return the largest change of each result over the probes, when each step of `reference` is perturbed.

    A reference that takes plain arrays only, or leaves NumPy, does not change: input errors judge it.

    Args:
        reference: returns results by name.
        arrays: its inputs.
        exact: its results on them.
        where: label of the case, for errors.
        nudge: perturbation of a step's result.
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
    """Return the results of `reference` on `arrays` with each step perturbed.

    Raises:
        MeasureError: it fails, or takes plain arrays only.
    """
    # A class attribute, as an instance attribute would be copied in each of millions of operations.
    held = {"nudge": staticmethod(nudge), "follows": hasattr(nudge, "named")}
    watched = type("_Nudged", (_Watched,), held)
    watched_arrays = {
        name: array.view(watched) if array.dtype.kind in "fc" else array for name, array in arrays.items()
    }
    return {name: _plain(array) for name, array in evaluated(reference, watched_arrays, where).items()}


def rounding(step: float) -> Nudge:
    """Return a perturbation by the relative error `step` with random signs.

    >>> float(abs(rounding(0.5)(np.array([4.0]))[0] - 4.0))
    2.0
    """
    factors = _Drawn(22, np.array([1.0 - step, 1.0 + step]))
    return lambda values: values * factors.of(np.shape(values))


def underflow(half_step: float, normal: float) -> Nudge:
    """Return a perturbation by `half_step`, or to 0, of results below the smallest `normal` number.

    >>> nudge = underflow(2.0**-25, 2.0**-14)
    >>> float(nudge(np.array([1.0]))[0]), float(abs(nudge(np.array([2.0**-20]))[0] - 2.0**-20)) == 2.0**-25
    (1.0, True)
    """
    signs = _Drawn(23, np.array([-1.0, 1.0]))

    def nudge(values: Any) -> Any:
        size = np.abs(values)
        error = np.where(size < normal, np.minimum(size, half_step), 0.0)
        return values + error * signs.of(np.shape(values))

    nudge.of_stored = True  # type: ignore[attr-defined]  # stored tensors underflow too
    return nudge


def stored_by(array: Any) -> Nudge | None:
    """Return the perturbation that a watched array's evaluation applies to saved tensors of autograd; none if none."""
    nudge = getattr(type(array), "nudge", None)
    return nudge if getattr(nudge, "of_stored", False) else None


class _Drawn:
    """Random choices of one of two numbers, drawn many at a time, as most arrays are small."""

    def __init__(self, seed: int, either: Any) -> None:
        self._random, self._either, self._left = np.random.default_rng(seed), either, either[:0]

    def of(self, shape: tuple[int, ...]) -> Any:
        """Return the next choices, in that shape."""
        count = prod(shape)
        if count > len(self._left):
            fresh = self._random.integers(0, 2, max(DRAWN, count - len(self._left)))
            self._left = np.concatenate([self._left, self._either[fresh]])
        factors, self._left = self._left[:count], self._left[count:]
        return factors.reshape(shape)
