"""Tensors that a program fills with a regular pattern, such as masks and bands, apart from those that hold data."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nearpeak.frontends.known_values.tensor_pieces import Made, Part, TooLargeError, repeats

LARGEST_ELEMENTS = 2**26
"""Largest tensor, in distinct elements, that is examined."""
_BLOCK_ELEMENTS = 2**16


def is_pattern(part: Part) -> bool:
    """Return whether a tensor is a mask or band as constructors compute them: in each row one run of one number.

    A tensor filled with one number says nothing: it is the placeholder of data that is loaded later.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if len(part.shape) < 2 or min(part.shape[-2:]) < 2 or prod(distinct_extents(part)) > LARGEST_ELEMENTS:
        return False
    numbers: set[float] = set()
    try:
        with _disable_current_modes(), torch.no_grad():
            for starts, sizes in pieces_of(part.shape):
                block = part.block(starts, sizes, Made())
                if block.is_complex() or not isinstance(block, torch.Tensor):
                    return False
                values = block.double().numpy()
                numbers.update(np.unique(values).tolist())
                if len(numbers) > 2 or 0.0 not in numbers or not one_run(values, -1):
                    return False
    except (TooLargeError, RecursionError):
        return False
    return len(numbers) == 2


def distinct_extents(part: Part) -> list[int]:
    """Return the extents of a view, 1 along dimensions that only repeat values."""
    return [1 if repeats(part, axis) else extent for axis, extent in enumerate(part.shape)]


def pieces_of(shape: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Return starts and sizes of pieces of a tensor, of no more than _BLOCK_ELEMENTS where one row allows it."""
    if not shape:
        yield [], []
        return
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= _BLOCK_ELEMENTS:
        inner *= shape[axis]
        axis -= 1
    step = max(1, _BLOCK_ELEMENTS // inner)
    for outer in product(*(range(extent) for extent in shape[:axis])):
        for first in range(0, shape[axis], step):
            starts = [*outer, first, *[0] * (len(shape) - axis - 1)]
            yield starts, [*[1] * axis, min(step, shape[axis] - first), *shape[axis + 1 :]]


def one_run(numbers: Any, axis: int) -> bool:
    """Return whether the nonzero elements along one dimension are equal and contiguous."""
    numbers = np.moveaxis(numbers, axis, -1)
    full = numbers != 0
    begins = full[..., 0].astype(int) + (full[..., 1:] & ~full[..., :-1]).sum(axis=-1)
    least, most = np.where(full, numbers, np.inf).min(axis=-1), np.where(full, numbers, -np.inf).max(axis=-1)
    return bool((begins <= 1).all() and ((least == most) | (begins == 0)).all())
