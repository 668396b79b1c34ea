"""Scales and zero points of quantised matrix products: counts by scheme, application, matching."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import mul, sub
from typing import Any

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.scheme import Operand
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div

_FP32 = dtype_of("fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Scales and zero points of both factors of one product."""

    a_count: int
    """Scales of A."""
    b_count: int
    """Scales of B."""
    zero_count: int
    """Zero points of B."""
    tensor_count: int
    """fp32 scales of whole tensors."""
    dtype: str
    """Format of scales."""
    zero_dtype: str
    """Format of zero points; empty for that of scales."""

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        zeros = dtype_of(self.zero_dtype or self.dtype).bytes(self.zero_count)
        return dtype_of(self.dtype).bytes(self.a_count + self.b_count) + zeros + _FP32.bytes(self.tensor_count)


def factors_of(dtype: DType, m: int, n: int, k: int, stated_factors: Factors, stated: bool) -> Factors:
    """Return the factors of a product: those of the scheme that `dtype` names, or the stated ones.

    Args:
        stated: whether any factor differs from the default.
    """
    scheme = dtype.scheme
    if scheme is None:
        return stated_factors
    if stated:
        raise SpecError(f"scaled_gemm: dtype={dtype.name} says what is scaled; leave out the counts of scales")
    b = scheme.b.scale_count(n, k)
    return Factors(
        a_count=scheme.a.scale_count(m, k), b_count=b, zero_count=b if scheme.zeros else 0 * b,
        tensor_count=scheme.tensor_scale_count,
        dtype=scheme.scale, zero_dtype="",
    )  # fmt: skip


def formats_of(dtype: DType, b_dtype: DType | None, out_dtype: DType | None) -> tuple[DType, DType, DType]:
    """Return the formats in which A, B and the product are stored."""
    if dtype.scheme is None:
        return dtype, b_dtype or dtype, out_dtype or dtype
    a, b, out = (dtype_of(name) for name in (dtype.scheme.a.dtype, dtype.scheme.b.dtype, dtype.scheme.out))
    return a, b_dtype or b, out_dtype or out


def spread(matrix: Any, factors: Any, join: Callable[[Any, Any], Any], operand: Operand | None) -> Any:
    """Return the matrix joined with its factors: one for all, or each for a block of rows and columns.

    Without a scheme there are equally many factors per row.
    """
    rows, columns = matrix.shape
    if len(factors) == 1:
        return join(matrix, factors)
    if operand is None:
        wide, rest = divmod(len(factors), rows)
        if rest or columns % wide:
            raise NotModelledError(f"scaled_gemm: no reference for {len(factors)} factors over {rows} rows")
        operand = Operand(dtype="", row_count=1, column_count=columns // wide)
    high = operand.row_count or rows
    wide = operand.column_count or columns
    grid = factors.reshape(ceil_div(rows, high), ceil_div(columns, wide))
    for axis, (times, extent) in enumerate(((high, rows), (wide, columns))):
        if grid.shape[axis] > 1 and times > 1:
            grid = (
                grid.repeat_interleave(times, axis) if hasattr(grid, "repeat_interleave") else grid.repeat(times, axis)
            )
        grid = grid[:extent] if axis == 0 else grid[:, :extent]
    return join(matrix, grid)


def unscaled(arrays: Mapping[str, Any], dtype: str) -> tuple[Any, Any]:
    """Return both factors with zero points and scales applied, B transposed, of NumPy arrays or tensors."""
    scheme = dtype_of(dtype).scheme
    of_a, of_b = (scheme.a, scheme.b) if scheme else (None, None)
    a, b = arrays["a"], arrays["b"].T
    a = spread(a, arrays["a_scale"], mul, of_a) if "a_scale" in arrays else a
    b = spread(b, arrays["b_zero"], sub, of_b) if "b_zero" in arrays else b
    b = spread(b, arrays["b_scale"], mul, of_b) if "b_scale" in arrays else b
    return a, b


_RECIPES = ((0, 0), (1, 0), (1, 16), (1, 32), (1, 128), (128, 128))
"""Rows and columns that share a scale, by number of PyTorch's ScalingType."""
_BLOCK_OF_SCALE = {"fp8_e8m0": 3, "fp8_e4m3": 2}
"""Recipe that scales of a format imply."""


def recipe_of(scale: Tensor, rows: int) -> int | None:
    """Return the recipe that a scale tensor shows by its format and size; none for blocks, which say their number."""
    implied = _BLOCK_OF_SCALE.get(scale.dtype)
    if implied is not None:
        return implied
    return 0 if scale.elements == 1 else 1 if scale.distinct == rows else None


def scales_needed(scale: Tensor, recipe: int | None, rows: int, columns: int) -> int:
    """Return the scales of a captured tensor that belong to elements: swizzled layouts pad them to whole tiles."""
    if recipe is None:
        return scale.distinct
    high, wide = _RECIPES[recipe]
    return min(scale.distinct, Operand(dtype="", row_count=high, column_count=wide).scale_count(rows, columns))


def unpacked(tensor: Tensor, packed_dimension: int) -> Tensor:
    """Return the tensor with two fp4 numbers per stored element taken apart."""
    if tensor.dtype != "fp4_e2m1_x2":
        return tensor
    shape = list(tensor.shape)
    shape[packed_dimension] *= 2
    return Tensor(shape=tuple(shape), dtype="fp4_e2m1", buffer=tensor.buffer)
