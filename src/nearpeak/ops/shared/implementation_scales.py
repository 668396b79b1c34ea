"""Replaces quantised outputs by the reference's where they differ only by the rounding of their fp32 scales."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nearpeak.ops.shared.narrow_arithmetic import blocks_of, largest_of, narrowed

_APART_RATIO = 2.0**-22
"""By how much scales in fp32 may differ: a reciprocal and a product are rounded where a quotient is rounded once."""


def as_of_own_scales(
    tensors: dict[str, Any], outputs: dict[str, Any], wanted: dict[str, Any], **arguments: Any
) -> dict[str, Any]:
    """Return `outputs` with scales and numbers as in `wanted` where they are as right.

    The largest magnitude may be divided by the largest number of the format, or multiplied by its reciprocal; numbers
    may be divided by the scale, or multiplied by its reciprocal or by the quotient the other way round. Only scales
    found in fp32 are so: others are rounded to fewer digits, or powers of two.

    Args:
        tensors: inputs by name, torch tensors.
        outputs: torch tensors by name.
        wanted: arrays by name.
    """
    if arguments["scaling"] != "current" or arguments["zero_dtype"] or arguments["tensor_scale"]:
        return outputs
    if arguments["scale_dtype"] != "fp32" or any(outputs[k].shape != np.shape(wanted[k]) for k in wanted):
        return outputs
    x, blocks = tensors["x"].float().numpy(), (max(arguments["block_rows"], 1), max(arguments["block_columns"], 1))
    settled = outputs | _settled(x, "", "", outputs, wanted, blocks, arguments["out_dtype"])
    if "q_transposed" not in outputs:
        return settled
    suffix = "_transposed" if "scale_transposed" in outputs else ""
    swapped = blocks if suffix else blocks[::-1]
    return settled | _settled(x.T, "_transposed", suffix, outputs, wanted, swapped, arguments["out_dtype"])


def _settled(
    x: Any, which: str, scales: str, outputs: dict[str, Any], wanted: dict[str, Any], blocks: tuple[int, int], to: str
) -> dict[str, Any]:  # fmt: skip
    """Return one copy and its scales, which are that of the matrix or its own; nothing where scales are wrong."""
    import torch

    q, scale, right = outputs[f"q{which}"], outputs[f"scale{scales}"].numpy(), wanted[f"scale{scales}"]
    if not (np.abs(scale - right) <= _APART_RATIO * right).all():
        return {}
    target = torch.as_tensor(np.ascontiguousarray(wanted[f"q{which}"])).to(q.dtype)
    got, agreed = _bits(q, torch), torch.zeros(q.shape, dtype=torch.bool)
    for numbers in _ways(x, scale, right, blocks, to):
        agreed |= _bits(torch.as_tensor(np.ascontiguousarray(numbers)).to(q.dtype), torch) == got
    settled = torch.where(agreed, _bits(target, torch), got).view(q.dtype)
    return {
        f"q{which}": settled,
        f"scale{scales}": torch.as_tensor(np.ascontiguousarray(right)).to(outputs[f"scale{scales}"].dtype),
    }


def _bits(tensor: Any, torch: Any) -> Any:
    return tensor.contiguous().view(torch.uint8) if tensor.element_size() == 1 else tensor


def _ways(x: Any, scale: Any, right: Any, blocks: tuple[int, int], to: str) -> Iterator[Any]:
    """Yield the numbers by each way to scale them."""
    low, top = blocks_of(x, *blocks, np)
    given_scale, exact = (np.asarray(scales, np.float32).reshape(low.shape) for scales in (scale, right))
    by_row, by_column = np.arange(x.shape[0]) // blocks[0], np.arange(x.shape[1]) // blocks[1]
    with np.errstate(all="ignore"):
        factors = (1 / given_scale, 1 / exact, np.float32(largest_of(to)) / np.maximum(-low, top))
        products = [x * factor[by_row][:, by_column] for factor in factors]
    yield narrowed(x, given_scale, None, blocks, to, None)
    yield narrowed(x, exact, None, blocks, to, None)
    for product in products:
        yield narrowed(product, np.ones_like(given_scale), None, blocks, to, None)
