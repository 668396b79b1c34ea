"""Shapes of ATen operators that PyTorch has for GPUs only and forgot to describe for tensors without memory."""

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
    return library


def _grouped(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
    offs: Any = None, bias: Any = None, out_dtype: Any = None, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """Return the product: one matrix per group where both factors are split or neither, else one for all rows."""
    import torch

    del scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, contraction_dim, use_fast_accum
    groups = [a.shape[0]] if a.dim() == b.dim() == 3 else [offs.shape[0]] if a.dim() == b.dim() == 2 else []
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]), dtype=out_dtype or torch.bfloat16)


def _mixed(x: Any, weight: Any, scale: Any, *, bias: Any = None, activation: Any = None) -> Any:
    """Return x[..., k] times the weight, whose int4 numbers lie two to a byte along n; scales have one per column."""
    del weight, bias, activation
    return x.new_empty((*x.shape[:-1], scale.shape[-1]))
