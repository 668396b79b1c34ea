"""Arrays with emulated matrix-product summation, on which the float64 references run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.ops.shared.number_formats import FloatFormat
from nearpeak.simulation.emulation.accumulator import Accumulator, cut_sum, multiply
from nearpeak.simulation.emulation.block_formats import BlockFormat, Row

_SUMS = (np.add, np.subtract)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How arrays are multiplied, and what everything else is rounded to."""

    accumulator: Accumulator
    """How sums of products are kept."""
    factors: Row | None = None
    """Format that the factors of products of matrices are put into first; none where they are in their own already."""
    vector: FloatFormat | None = None
    """Format of element-wise results; none for float64."""
    rounding: str = "nearest_even"
    """One of `ops._formats.ROUNDINGS`, of factors and element-wise results."""
    seed: int = 0
    """Of stochastic rounding."""

    def product(self, a: Any, b: Any) -> Any:
        """Return a batch of products of shapes [...,m,k] and [...,k,n]."""
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        whole = np.zeros((*shape, a.shape[-2], b.shape[-1]))
        if not whole.size or not a.shape[-1]:
            return whole
        left = np.broadcast_to(self._narrow(a), (*shape, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
        right = self._narrow(b.swapaxes(-1, -2)).swapaxes(-1, -2)
        right = np.broadcast_to(right, (*shape, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
        pairs = enumerate(zip(left, right, strict=True))
        return np.stack([multiply(x, y, self.accumulator, seed=self.seed + i) for i, (x, y) in pairs]).reshape(
            whole.shape
        )

    def _narrow(self, x: Any) -> Any:
        """Return a factor in the format of factors, which sums run along the last dimension of."""
        if self.factors is None:
            return x
        if isinstance(self.factors, BlockFormat):
            return self.factors.rounded(x, self.rounding, seed=self.seed)
        finite = not isinstance(self.factors, FloatFormat) or self.factors.nan != "ieee"  # others have infinities
        return self.factors.rounded(x, self.rounding, saturates=finite, seed=self.seed)

    def kept(self, x: Any) -> Any:
        """Return an element-wise result as it is kept."""
        if self.vector is None or getattr(x, "dtype", np.dtype(object)).kind != "f":
            return x
        return self.vector.rounded(x, self.rounding, seed=self.seed)


class Emulated(np.ndarray[Any, Any]):
    """An array of float64 whose products of matrices follow an arithmetic; sums of products stay in its accumulator."""

    how: Arithmetic | None
    is_sum: bool

    def __array_finalize__(self, other: Any) -> None:
        """Take over the arithmetic of what this is a view or copy of."""
        self.how = getattr(other, "how", None)
        self.is_sum = getattr(other, "is_sum", False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **arguments: Any) -> Any:
        """Form products as emulated; everything else as NumPy does, then rounded."""
        how = _arithmetic(inputs, out)
        plain = [_plain(operand) for operand in inputs]
        sums = ufunc in _SUMS and any(getattr(operand, "is_sum", False) for operand in inputs)
        if ufunc is np.matmul and method == "__call__" and how is not None:
            return _written(_matmul(how, *plain), out, how, is_sum=True)
        with np.errstate(all="ignore"):  # special values are part of what is emulated
            result = getattr(ufunc, method)(*plain, **arguments)
        if method == "at" or how is None:
            return result
        if isinstance(result, tuple):
            return tuple(_wrapped(how.kept(operand), how) for operand in result)
        if sums and method == "__call__":
            return _written(cut_sum(result, how.accumulator, seed=how.seed), out, how, is_sum=True)
        return _written(how.kept(result), out, how)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        """Form sums over indices and inner products as emulated."""
        how = _arithmetic([operand for operand in args if isinstance(operand, np.ndarray)], None)
        if how is not None and function is np.einsum and len(args) == 3 and isinstance(args[0], str):
            return _wrapped(_einsum(how, args[0], _plain(args[1]), _plain(args[2])), how, is_sum=True)
        if how is not None and function is np.dot and all(np.ndim(operand) in (1, 2) for operand in args[:2]):
            return np.matmul(*args[:2])
        return super().__array_function__(function, types, args, kwargs)


def emulating(array: Any, how: Arithmetic) -> Any:
    """Return an array of floats that multiplies as `how` says; whole numbers as they are.

    >>> how = Arithmetic(accumulator=Accumulator(significant_bits_count=8))
    >>> ones = emulating(np.ones((1, 1000)), how)
    >>> float((ones @ ones.T)[0, 0])
    256.0
    """
    if getattr(array, "dtype", np.dtype(object)).kind != "f":
        return array
    return _wrapped(np.asarray(array, dtype=np.float64), how)


def _wrapped(array: Any, how: Arithmetic, *, is_sum: bool = False) -> Any:
    if getattr(array, "dtype", np.dtype(object)).kind != "f":
        return array
    emulated = np.asarray(array).view(Emulated)
    emulated.how, emulated.is_sum = how, is_sum
    return emulated


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, Emulated) else array


def _arithmetic(inputs: Sequence[Any], out: Any) -> Arithmetic | None:
    """Return the arithmetic of the first array that has one."""
    arithmetics = (getattr(operand, "how", None) for operand in (*inputs, *(out or ())))
    return next((how for how in arithmetics if how is not None), None)


def _written(array: Any, out: Any, how: Arithmetic, *, is_sum: bool = False) -> Any:
    """Return a result, in the array that was given for it."""
    if not out:
        return _wrapped(array, how, is_sum=is_sum)
    _plain(out[0])[...] = array
    if isinstance(out[0], Emulated):
        out[0].is_sum = is_sum
    return out[0]


def _matmul(how: Arithmetic, a: Any, b: Any) -> Any:
    """Return a product as `np.matmul` shapes it."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    product = how.product(left[None] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right)
    product = product[..., 0] if right.ndim == 1 else product
    return product[..., 0, :] if left.ndim == 1 and right.ndim > 1 else product[..., 0] if left.ndim == 1 else product


def _einsum(how: Arithmetic, equation: str, a: Any, b: Any) -> Any:
    """Return a sum over indices of two operands as a batch of products of matrices."""
    left, right, out = _spelled(equation, a.ndim, b.ndim)
    sizes = dict(zip(left + right, (*a.shape, *b.shape), strict=True))
    lone = [index for index in left + right if index not in out and (index in left) != (index in right)]
    for index in lone:  # what only one operand has is summed before
        if index in left:
            a, left = a.sum(left.index(index)), left.replace(index, "")
        else:
            b, right = b.sum(right.index(index)), right.replace(index, "")
    batch = [index for index in left if index in right and index in out]
    summed = [index for index in left if index in right and index not in out]
    rows, columns = (
        [index for index in indices if index not in other] for indices, other in ((left, right), (right, left))
    )
    x = _ordered(a, left, (batch, rows, summed), sizes)
    y = _ordered(b, right, (batch, summed, columns), sizes)
    product = how.product(x, y).reshape([sizes[index] for index in (*batch, *rows, *columns)])
    order = [*batch, *rows, *columns]
    return product.transpose([order.index(index) for index in out])


def _spelled(equation: str, left: int, right: int) -> tuple[str, str, str]:
    """Return the indices of operands and result, ellipses spelled out."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    left_text, right_text = inputs.split(",")
    free = [letter for letter in _LETTERS if letter not in equation]
    more = max(left - len(left_text.replace("...", "")) if "..." in left_text else 0,
               right - len(right_text.replace("...", "")) if "..." in right_text else 0)  # fmt: skip
    spread = "".join(free[:more])
    first, second = (
        text.replace("...", spread[len(spread) - (rank - len(text.replace("...", ""))) :] if "..." in text else "")
        for text, rank in ((left_text, left), (right_text, right))
    )
    return first, second, out.replace("...", spread)


def _ordered(x: Any, indices: str, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> Any:
    """Return an operand with its indices gathered into three dimensions."""
    moved = x.transpose([indices.index(index) for group in groups for index in group])
    return moved.reshape([int(np.prod([sizes[index] for index in group], dtype=np.int64)) for group in groups])
