"""Input values next to thresholds: neighbouring floats, bin edges, midpoints between values of a narrower format."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded


def close(random: Any, tensor: Tensor) -> Any:
    """Return numbers between 1 and 2, next to each other in the tensor's own format: all distinct, if there are enough.

    Where there are more elements than such numbers, the following ones of twice and four times the size are used too.
    """
    steps = round(1 / (2 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]))
    places = random.permutation(max(tensor.elements, _CLOSE))[: tensor.elements]
    octave, place = np.divmod(places, min(steps, 2**23))
    return ((1 + place / steps) * 2.0 ** (octave % 8)).reshape(tensor.shape)


_CLOSE = 8
"""Numbers next to each other, at least, of which few elements are drawn, so that they lie among those of more."""


def next_to(random: Any, edges: Any, tensor: Tensor) -> Any:
    """Return numbers on both sides of edges, further than an implementation's own rounding errors."""
    kind = dtype_of(tensor.dtype)
    apart = _BESIDE * UNIT_ROUNDOFF[kind.name] * random.choice((-1.0, 1.0), tensor.shape)
    inner = edges[1:-1] if np.any(edges[1:-1]) else edges  # next to 0 there is no other number
    places = random.choice(inner, tensor.shape)
    if places.size:  # few numbers seldom meet the first and the last of many edges by themselves
        places.flat[-1], places.flat[0] = random.permutation((inner[-1], inner[0] or inner[-1]))
        # The first lies where fewer bits move it to the other side; the last edge of all belongs to what is below.
        first, name = places.flat[0], _FEWER.get(kind.name, kind.name)
        inwards = rounded(first, torch_format(name)) >= first != edges[-1]
        apart.flat[0] = abs(apart.flat[0]) * np.sign(first) * (-1.0 if inwards else 1.0)
    return places * (1 + apart)


_FEWER = {"fp64": "fp32", "fp32": "bf16"}
"""The format that a kernel might compute in without permission."""
_BESIDE = 32.0
"""Roundoffs of a number's own format by which it is next to an edge: finding its bin takes a few operations."""


def midway(random: Any, tensor: Tensor) -> Any:
    """Return numbers a few last places of the tensor's own format above or below a middle between narrower ones.

    Middles are those between numbers of 8, 11 or 24 significant bits: bf16, fp16 and fp32.
    """
    last = 2.0 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]
    bits = random.choice([width for width in (8, 11, 24) if 2.0**-width > 4 * last] or [1], tensor.shape)
    middle = 1 + (random.integers(0, 2 ** (bits - 1)) + 0.5) * 2.0 ** (1.0 - bits)
    return random.choice((-1.0, 1.0), tensor.shape) * (middle + random.choice((-2.0, 2.0), tensor.shape) * last)


def midway_byte(random: Any, tensor: Tensor) -> Any:
    """Return numbers beside middles between those of 3 or 4 significant bits: fp8 in either form.

    They are nearer than bf16 tells apart, and further than a correct result may be moved on the way.
    """
    last = 2.0 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]
    bits = random.choice((3, 4), tensor.shape)
    middle = 1 + (random.integers(0, 2 ** (bits - 1)) + 0.5) * 2.0 ** (1.0 - bits)
    apart = max(2 * last, _BESIDE_MIDDLE) * random.choice((-1.0, 1.0), tensor.shape)
    return random.choice((-1.0, 1.0), tensor.shape) * (middle + apart)


_BESIDE_MIDDLE = 2.0**-10
