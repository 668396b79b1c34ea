"""Input values next to thresholds: neighbouring floats, bin edges, midpoints between values of a narrower format."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded


def close(random: Any, tensor: Tensor) -> Any:
    """Return neighbouring numbers between 1 and 2 of the tensor's format: all distinct, if there are enough.

    Where there are more elements than such numbers, those of the following binades are used too.
    """
    steps = round(1 / (2 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]))
    places = random.permutation(max(tensor.elements, _CLOSE))[: tensor.elements]
    octave, place = np.divmod(places, min(steps, 2**23))
    return ((1 + place / steps) * 2.0 ** (octave % 8)).reshape(tensor.shape)


_CLOSE = 8
"""Least count of neighbouring numbers from which few elements are drawn."""


def next_to(random: Any, edges: Any, tensor: Tensor) -> Any:
    """Return numbers on both sides of edges, further apart than an implementation's rounding errors."""
    kind = dtype_of(tensor.dtype)
    apart = _BESIDE * UNIT_ROUNDOFF[kind.name] * random.choice((-1.0, 1.0), tensor.shape)
    inner = edges[1:-1] if np.any(edges[1:-1]) else edges  # next to 0 there is no other number
    places = random.choice(inner, tensor.shape)
    if places.size:  # few numbers seldom reach the first and last of many edges
        places.flat[-1], places.flat[0] = random.permutation((inner[-1], inner[0] or inner[-1]))
        # The first lies where fewer bits move it across its edge; the last edge belongs to the bin below.
        first, name = places.flat[0], _FEWER.get(kind.name, kind.name)
        inwards = rounded(first, torch_format(name)) >= first != edges[-1]
        apart.flat[0] = abs(apart.flat[0]) * np.sign(first) * (-1.0 if inwards else 1.0)
    return places * (1 + apart)


_FEWER = {"fp64": "fp32", "fp32": "bf16"}
"""The format that a kernel might compute in without permission."""
_BESIDE = 32.0
"""Distance from an edge in roundoffs of the number's format: finding its bin takes a few operations."""


def midway(random: Any, tensor: Tensor) -> Any:
    """Return numbers a few last places of the tensor's format above or below midpoints of a narrower format.

    The midpoints lie between numbers of 8, 11 or 24 significant bits: bf16, fp16 and fp32.
    """
    last = 2.0 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]
    bits = random.choice([width for width in (8, 11, 24) if 2.0**-width > 4 * last] or [1], tensor.shape)
    middle = 1 + (random.integers(0, 2 ** (bits - 1)) + 0.5) * 2.0 ** (1.0 - bits)
    return random.choice((-1.0, 1.0), tensor.shape) * (middle + random.choice((-2.0, 2.0), tensor.shape) * last)


def midway_byte(random: Any, tensor: Tensor) -> Any:
    """Return numbers next to midpoints of 3 or 4 significant bits: both forms of fp8.

    They are nearer to the midpoint than bf16 resolves, and further than a correct computation may err.
    """
    last = 2.0 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]
    bits = random.choice((3, 4), tensor.shape)
    middle = 1 + (random.integers(0, 2 ** (bits - 1)) + 0.5) * 2.0 ** (1.0 - bits)
    apart = max(2 * last, _BESIDE_MIDDLE) * random.choice((-1.0, 1.0), tensor.shape)
    return random.choice((-1.0, 1.0), tensor.shape) * (middle + apart)


_BESIDE_MIDDLE = 2.0**-10
