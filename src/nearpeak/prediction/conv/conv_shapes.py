"""Convolutions as matrix products: extents and arithmetic of one pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_SPACE = ("d", "h", "w")
_PAIR_POINTS = 4
"""Products that F(2, 3) takes for two outputs of three taps; longer kernels are cut into threes.

Source: Lavin 2015, arXiv:1509.09308.
"""
MOST_STRIDE = 2
"""Largest stride with kernels of Winograd's algorithm."""
WIDE_POINTS, _WIDE_OUTPUTS = 6, 4
"""Products that F(4, 3) takes for four outputs of three taps (Lavin 2015, the same)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Extents of cases, as columns."""

    images: Any
    """Images of the batch."""
    inputs: Any
    """Input positions of an image."""
    outputs: Any
    """Output positions of an image."""
    taps: Any
    """Positions of the kernel."""
    groups: Any
    """Groups of channels."""
    channels: Any
    """Input channels of a group."""
    filters: Any
    """Output channels of a group."""
    strides: Any
    """Input positions per output position."""
    points: Any
    """Products per channel and filter of an image in Winograd's algorithm; 0 where it does not apply."""
    wide_points: Any
    """The same for tiles of four outputs."""
    wide_axes: Any
    """Axes of space along which the kernel has several taps."""

    @property
    def flop(self) -> Any:
        """Arithmetic of one pass, products with padding included."""
        return 2 * self.images * self.outputs * self.taps * self.groups * self.channels * self.filters


def shape_of(axes: Mapping[str, Any]) -> Shape:
    """Return the extents of cases of `conv`."""

    def axis(name: str, default: float = 1.0) -> Any:
        return np.asarray(axes.get(name, default), dtype=np.float64)

    inputs, outputs, taps, strides = np.ones(1), np.ones(1), np.ones(1), np.ones(1)
    points, wide, axes_count, applies = np.ones(1), np.ones(1), np.zeros(1), np.array([True])
    for axis_name in _SPACE:
        size, kernel, stride, dilation = (
            axis(axis_name),
            axis(f"k{axis_name}"),
            axis(f"s{axis_name}"),
            axis(f"d{axis_name}"),
        )
        begin = axis(f"p{axis_name}", 0.0)
        end = axis(f"p{axis_name}_end", 0.0) if axes.get(f"p{axis_name}_end") is not None else begin
        out = np.maximum((size + begin + end - dilation * (kernel - 1) - 1) // stride + 1, 0.0)
        inputs, outputs, taps, strides = inputs * size, outputs * out, taps * kernel, strides * stride
        points = points * _pair_points(out, kernel, stride)
        threes = WIDE_POINTS * np.ceil(out / _WIDE_OUTPUTS) * np.ceil(kernel / 3)
        wide, axes_count = wide * np.where(kernel == 1, out, threes), axes_count + (kernel > 1)
        applies = applies & (stride <= MOST_STRIDE) & (dilation == 1)
    applies = applies & (taps > 1)
    groups = axis("groups")
    columns = np.broadcast_arrays(
        axis("batch"), inputs, outputs, taps, groups, axis("in_channels") // groups, axis("out_channels") // groups,
        strides, np.where(applies, points, 0.0), np.where(applies & (strides == 1), wide, 0.0), axes_count,
    )  # fmt: skip
    copies = (np.array(axis_name, ndmin=1) for axis_name in columns)  # compiled code takes no broadcast views
    return Shape(**dict(zip(Shape.__dataclass_fields__, copies, strict=True)))


def _pair_points(out: Any, kernel: Any, stride: Any) -> Any:
    """Return the products along one axis: taps that meet the same input positions go together, pairs of outputs.

    F(2, r) takes r + 1 products for two outputs.
    """
    points = np.zeros(1)
    for first in range(MOST_STRIDE):
        taps = np.where(first < stride, np.ceil(np.maximum(kernel - first, 0.0) / stride), 0.0)
        short = np.where(taps > 0, taps + 1, 0.0)
        points = points + np.where(taps < 3, short, _PAIR_POINTS * np.ceil(taps / 3))
    return np.where(kernel == 1, out, points * np.ceil(out / 2))


def product_of(shape: Shape, part: str) -> tuple[Any, Any, Any]:
    """Return m, n and k of one group of a pass: `fprop`, `dgrad` or `wgrad`.

    An input position meets one tap in as many as there are input positions per output; some meet none.
    """
    positions = shape.images * shape.outputs
    if part == "fprop":
        return positions, shape.filters, shape.channels * shape.taps
    if part == "dgrad":
        met = shape.taps / shape.strides
        return shape.images * shape.inputs * np.minimum(met, 1.0), shape.channels, shape.filters * np.maximum(met, 1.0)
    return shape.filters, shape.channels * shape.taps, positions
