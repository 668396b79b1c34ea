"""Rounding on the way: a reference evaluated so that each arithmetic step of it errs, as those of a real format do."""

# Errors of inputs do not show what cancels inside: the gradient of v / |v| is 0 in one dimension, and an implementation
# subtracts two equal numbers, each rounded. Stochastic arithmetic shows it without a formula for each operator
# (Vignes 2004, "Discrete stochastic arithmetic for validating results of numerical software").

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from nearpeak.errors import MeasureError
from nearpeak.measure.validation._reach import PROBES, Arrays, Reference, evaluated

EXACT = frozenset(
    {
        "maximum", "minimum", "fmax", "fmin", "negative", "positive", "absolute", "fabs", "sign", "floor", "ceil",
        "rint", "trunc", "copysign", "ldexp", "frexp", "conjugate", "heaviside", "nextafter", "spacing",
    }
)  # fmt: skip
"""Functions of NumPy whose results of numbers in a format are numbers in that format."""
SUMMED = frozenset({"einsum", "dot", "inner", "outer", "tensordot", "vdot", "interp", "convolve"})
"""Functions that compute without going through those that an array can watch."""
Nudge = Callable[[Any], Any]
_NUMBERS = (np.ndarray, np.floating, np.complexfloating)
_SIGNS = np.array([-1.0, 1.0])


class _Watched(np.ndarray):
    """An array each of whose arithmetic results is nudged: by what, a class made for one evaluation says."""

    @staticmethod
    def nudge(values: Any) -> Any:
        """Return what a step makes of its exact result."""
        return values

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Return what the function gives of plain arrays, nudged where it computes."""
        if out is not None:
            options["out"] = tuple(map(_plain, out))
        plain = [one.view(np.ndarray) if isinstance(one, _Watched) else one for one in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if method == "at" or result is None:
            return result
        exact, name = ufunc.__name__ in EXACT, ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if out is None and not isinstance(result, tuple):
            return self._of(result, name, exact=exact)
        found = tuple(self._of(one, name, exact=exact) for one in _many(result))
        if out is not None:
            for target, one in zip(out, found, strict=True):
                _plain(target)[...] = _plain(one)
            found = out
        return found if isinstance(result, tuple) else found[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return what the function gives; what it computes out of sight is nudged at its end."""
        result = super().__array_function__(function, types, args, kwargs)
        if result is NotImplemented or not isinstance(result, np.ndarray):
            return result
        return self._of(_plain(result), function.__name__, exact=function.__name__ not in SUMMED)

    def _of(self, result: Any, name: str, *, exact: bool) -> Any:
        if not isinstance(result, _NUMBERS) or result.dtype.kind not in "fc":
            return result
        if getattr(self.nudge, "is_done", False):  # nobody looks at what follows
            return np.asarray(result)
        if not exact:
            named = getattr(self.nudge, "named", None)
            result = (self.nudge if named is None else named(name))(result)
        return np.asarray(result).view(type(self))

    def __reduce__(self) -> Any:
        """Refuse to be kept: what is watched lives during one evaluation."""
        raise TypeError("a watched array is not kept")

    def __deepcopy__(self, memo: Any) -> Self:
        """Return a copy that is watched too."""
        return self.copy()


def _plain(one: Any) -> Any:
    return one.view(np.ndarray) if isinstance(one, _Watched) else one


def _many(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def erring(reference: Reference, arrays: Arrays, found: Arrays, where: str, nudge: Nudge) -> dict[str, Any]:
    """Return by how much each result moves, at most over the probes, when each step of `reference` is nudged.

    A reference that takes plain arrays only, or leaves NumPy, does not move: errors of its inputs judge it.

    Args:
        reference: gives results by name.
        arrays: its inputs, exact.
        found: its results on them.
        where: what is judged, for errors.
        nudge: what a step makes of its exact result.
    """
    most = {name: np.zeros(np.shape(values)) for name, values in found.items()}
    for _ in range(PROBES):
        try:
            results = nudged(reference, arrays, where, nudge)
        except MeasureError:
            return most
        for name, values in results.items():
            if values.shape == most[name].shape and values.dtype.kind in "fc":
                with np.errstate(all="ignore"):
                    moved = np.where(values == found[name], 0.0, np.abs(values - found[name]))
                most[name] = np.fmax(most[name], moved)
    return most


def nudged(reference: Reference, arrays: Arrays, where: str, nudge: Nudge) -> dict[str, Any]:
    """Return the results of `reference` on `arrays` when each step of it is nudged.

    Raises:
        MeasureError: it fails, or takes plain arrays only.
    """
    # A class holds it, not each array, which would have to hand it on: what that costs is paid millions of times.
    watched = type("_Nudged", (_Watched,), {"nudge": staticmethod(nudge)})
    given = {name: one.view(watched) if one.dtype.kind in "fc" else one for name, one in arrays.items()}
    return {name: _plain(one) for name, one in evaluated(reference, given, where).items()}


def rounding(step: float) -> Nudge:
    """Return what errs by `step` of each result, with random signs.

    >>> float(abs(rounding(0.5)(np.array([4.0]))[0] - 4.0))
    2.0
    """
    random = np.random.default_rng(22)
    return lambda values: values * (1.0 + step * _signs(random, np.shape(values)))


def underflow(half_step: float, normal: float) -> Nudge:
    """Return what errs by `half_step`, or vanishes, where results are below the smallest `normal` number.

    >>> nudge = underflow(2.0**-25, 2.0**-14)
    >>> float(nudge(np.array([1.0]))[0]), float(abs(nudge(np.array([2.0**-20]))[0] - 2.0**-20)) == 2.0**-25
    (1.0, True)
    """
    random = np.random.default_rng(23)

    def nudge(values: Any) -> Any:
        size = np.abs(values)
        error = np.where(size < normal, np.minimum(size, half_step), 0.0)
        return values + error * _signs(random, np.shape(values))

    nudge.of_stored = True  # type: ignore[attr-defined]  # what is kept in the format vanishes too
    return nudge


def stored_by(array: Any) -> Nudge | None:
    """Return what a watched array's evaluation does to numbers that another framework keeps; none where nothing."""
    nudge = getattr(type(array), "nudge", None)
    return nudge if getattr(nudge, "of_stored", False) else None


def _signs(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return what `random.choice((-1.0, 1.0), shape)` draws, without what it takes to look at its choices."""
    return _SIGNS[random.integers(0, 2, shape)]
