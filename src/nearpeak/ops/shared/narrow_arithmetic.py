"""Quantisation arithmetic in NumPy and, independently, in PyTorch: extremes, scales, rounding."""

import math
from typing import Any

import numpy as np

from nearpeak.ops.shared.definition.argument_cache import tensor_of
from nearpeak.ops.shared.number_formats import FORMATS
from nearpeak.ops.shared.torch_names import torch_dtype

_E8M0 = 127
"""Largest exponent of scales that are powers of two, and of their inverses."""
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of e2m1 in the order of their codes."""


def largest_of(name: str) -> float:
    """Return the largest number of a narrow format.

    >>> largest_of("fp8_e4m3")
    448.0
    """
    return FORMATS[name].largest


def blocks_of(x: Any, high: int, wide: int, library: Any) -> tuple[Any, Any]:
    """Return minimum and maximum of each block of `high` rows by `wide` columns, those at the edges cut."""
    rows, columns = range(0, x.shape[0], high), range(0, x.shape[1], wide)
    if not rows or not columns:  # there is no block of nothing
        return (library.zeros((len(rows), len(columns)), dtype=x.dtype),) * 2
    if library is np:
        first, second = list(rows), list(columns)
        low, top = (
            reduction.reduceat(reduction.reduceat(x, first, axis=0), second, axis=1)
            for reduction in (np.minimum, np.maximum)
        )
        return low, top
    parts = [[x[i : i + high, j : j + wide] for j in columns] for i in rows]
    low = library.stack([library.stack([part.amin() for part in row]) for row in parts])
    top = library.stack([library.stack([part.amax() for part in row]) for row in parts])
    return low, top


def scale_of(
    amax: Any, low: Any, top: Any, to: str, scale_dtype: str, zero_dtype: str, *, two_levels: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the scales by which quantised numbers are multiplied, zero points and further stored results, in NumPy."""
    largest = np.float32(largest_of(to))
    if zero_dtype:
        low, top = np.minimum(low, 0), np.maximum(top, 0)
        scale = _usable((top - low) / largest)
        zero = np.clip(np.rint(-low / scale), 0, largest)
        return scale, zero, {"zero": zero.reshape(-1)}
    if scale_dtype == "fp8_e8m0":
        # frexp is exact where a rounded logarithm may not be.
        exponent = np.frexp(_usable(amax))[1] - np.frexp(largest)[1]
        return np.exp2(np.clip(exponent, -_E8M0, _E8M0)).astype(np.float32), None, {}
    if two_levels:
        whole = _usable(amax.max(initial=0.0) / (largest * np.float32(largest_of(scale_dtype))))
        return narrowed_values(amax / largest / whole, scale_dtype), None, {"tensor_scale": whole.reshape(1)}
    return _usable(amax / largest), None, {}


def _usable(scale: Any) -> Any:
    """Return the scales, with 1 for zero, infinity and NaN: finite numbers then saturate or become 0."""
    return np.where(np.isfinite(scale) & (scale > 0), scale, 1).astype(np.float32)


def narrowed_values(x: Any, to: str) -> Any:
    """Return the numbers of `x` rounded to the nearest of a narrow float format, ties to even, saturating, in fp32.

    >>> narrowed_values(np.array([1.0625, 449.0, 2.0**-10]), "fp8_e4m3").tolist()
    [1.0, 448.0, 0.0]
    """
    return FORMATS[to].rounded(np.asarray(x, dtype=np.float32), saturates=True).astype(np.float32)


def narrowed(x: Any, scale: Any, zero: Any, blocks: tuple[int, int], to: str, tensor_scale: Any) -> Any:
    """Return x / scale (+ zero) rounded to the format, in NumPy; fp4 as codes, two per byte."""
    by_row, by_column = np.arange(x.shape[0]) // blocks[0], np.arange(x.shape[1]) // blocks[1]
    whole = np.float32(1) if tensor_scale is None else tensor_scale
    scaled = x / (np.asarray(scale, np.float32) * whole)[by_row][:, by_column]
    if tensor_scale is not None:
        scaled = np.where(x == 0, x, scaled)  # a block of zeros among others has a scale of 0 at two levels
    if to == "fp4_e2m1":
        codes = FORMATS[to].encode(scaled, saturates=True)
        return codes[:, ::2] | (codes[:, 1::2] << 4)
    if to.startswith("fp8"):
        return narrowed_values(scaled, to)
    rounded = np.rint(scaled) + (0 if zero is None else np.asarray(zero)[by_row][:, by_column])
    return FORMATS[to].rounded(rounded)


def scale_of_in_torch(
    amax: Any, low: Any, top: Any, to: str, scale_dtype: str, zero_dtype: str, *, two_levels: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Return what `scale_of` returns, in PyTorch and in the formats that are stored."""
    import torch

    largest = largest_of(to)
    if zero_dtype:
        low, top = low.clamp(max=0), top.clamp(min=0)
        scale = _usable_in_torch((top - low) / largest, torch)
        zero = (-low / scale).round().clamp(0, largest)
        return scale, zero, {"zero": zero.reshape(-1).to(torch_dtype(torch, zero_dtype))}
    if scale_dtype == "fp8_e8m0":
        exponent = torch.frexp(_usable_in_torch(amax, torch))[1] - math.frexp(largest)[1]
        return torch.exp2(exponent.clamp(-_E8M0, _E8M0).double()).float().to(torch.float8_e8m0fnu), None, {}
    if two_levels:
        most = amax.max() if amax.numel() else amax.new_zeros(())
        whole = _usable_in_torch(most / (largest * largest_of(scale_dtype)), torch)
        blocks = (amax / largest / whole).clamp(max=largest_of(scale_dtype)).to(torch_dtype(torch, scale_dtype))
        return blocks, None, {"tensor_scale": whole.reshape(1)}
    return _usable_in_torch(amax / largest, torch), None, {}


def _usable_in_torch(scale: Any, torch: Any) -> Any:
    return torch.where(scale.isfinite() & (scale > 0), scale, torch.ones_like(scale))


def narrowed_by_torch(x: Any, scale: Any, zero: Any, blocks: tuple[int, int], to: str, tensor_scale: Any) -> Any:
    """Return what `narrowed` returns, in PyTorch and in the format that is stored."""
    import torch

    def whole(per_block: Any) -> Any:
        tall = per_block.float().repeat_interleave(blocks[0], 0)[: x.shape[0]]
        return tall.repeat_interleave(blocks[1], 1)[:, : x.shape[1]]

    scaled = x / whole(scale.float() * (1 if tensor_scale is None else tensor_scale))
    scaled = scaled if tensor_scale is None else torch.where(x == 0, x, scaled)
    if to == "fp4_e2m1":
        return _packed_fp4(scaled, torch)
    if to.startswith("fp8"):
        return scaled.clamp(-largest_of(to), largest_of(to)).to(torch_dtype(torch, to))
    rounded = scaled.round() + (0 if zero is None else whole(zero))
    return rounded.clamp(0 if to == "uint8" else -128, largest_of(to)).to(torch_dtype(torch, to))


def _between_fp4() -> Any:
    grid = np.array(_FP4, np.float32)
    return (grid[1:] + grid[:-1]) / 2


def _packed_fp4(x: Any, torch: Any) -> Any:
    """Return the codes of the nearest e2m1 numbers, ties to even codes, two per byte."""
    middle = tensor_of(x.device, _between_fp4)
    magnitude = x.abs()
    below, above = (torch.bucketize(magnitude, middle, right=right) for right in (False, True))
    code = torch.where((below != above) & (below % 2 == 1), above, below)
    code = (code + 8 * torch.signbit(x)).to(torch.uint8)
    return code[:, ::2] | (code[:, 1::2] << 4)
