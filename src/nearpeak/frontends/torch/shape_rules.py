"""Fake-tensor shapes of ATen operators that PyTorch does not describe."""

from contextlib import suppress
from functools import cache
from typing import Any


@cache
def missing_shapes() -> Any:
    """Return the library that describes them; operators that PyTorch lacks or describes itself are left alone."""
    import torch

    library = torch.library.Library("aten", "FRAGMENT")
    shapes = {"_scaled_grouped_mm_v2": _grouped, "_mixed_dtypes_linear": _mixed}
    for name, shape in shapes.items():
        known = hasattr(torch.ops.aten, name) and torch._C._dispatch_has_kernel_for_dispatch_key(
            f"aten::{name}", "Meta"
        )
        if hasattr(torch.ops.aten, name) and not known:
            torch.library.register_fake(f"aten::{name}", shape, lib=library)
    if hasattr(torch.ops.aten, "_grouped_mm"):
        with suppress(RuntimeError):  # before PyTorch 2.8 nothing may take the place of a description
            library.impl("_grouped_mm", _grouped_in_any_format, "Meta")
    return library


def _grouped_in_any_format(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Return the product of groups: PyTorch 2.13 forms it in fp32 and fp16 too, and describes it in bf16 alone."""
    import torch

    del bias
    inner = (a.shape[-1], b.shape[-2])
    torch._check(inner[0] == inner[1], lambda: f"grouped_mm: a has {inner[0]} columns and b {inner[1]} rows")
    torch._check(a.dtype == b.dtype, lambda: f"grouped_mm: a is {a.dtype} and b {b.dtype}")
    return a.new_empty(_grouped_shape(a, b, offs), dtype=out_dtype or a.dtype)


def _grouped_shape(a: Any, b: Any, offs: Any) -> tuple[int, ...]:
    """Return one matrix per group where both factors are split or neither, else one for all rows or columns."""
    groups = [a.shape[0]] if a.dim() == b.dim() == 3 else [offs.shape[0]] if a.dim() == b.dim() == 2 else []
    return (*groups, a.shape[-2], b.shape[-1])


def _grouped(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
    offs: Any = None, bias: Any = None, out_dtype: Any = None, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """Return the product of numbers with scales, in 16 bits where nothing else is asked for."""
    import torch

    del scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, contraction_dim, use_fast_accum
    return a.new_empty(_grouped_shape(a, b, offs), dtype=out_dtype or torch.bfloat16)


def _mixed(x: Any, weight: Any, scale: Any, *, bias: Any = None, activation: Any = None) -> Any:
    """Return x[..., k] times the weight, whose int4 numbers lie two to a byte along n; scales have one per column."""
    del weight, bias, activation
    return x.new_empty((*x.shape[:-1], scale.shape[-1]))
