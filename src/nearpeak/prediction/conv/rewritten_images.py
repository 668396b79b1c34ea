"""Convolution algorithms that rewrite images in memory first: non-fused Winograd and im2col."""

from collections.abc import Mapping

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.prediction.conv.conv_shapes import WIDE_POINTS, Shape, product_of
from nearpeak.prediction.conv.conv_tiles import Costs, applicable, tiled


def wide_winograd(
    target: Target, shape: Shape, part: str, device: tuple[float, int], fitted: Mapping[str, float]
) -> Costs:  # fmt: skip
    """Return the costs of Winograd's algorithm for tiles of four outputs, infinite where it does not apply.

    Separate kernels transform images and filters, one product per point follows, another kernel transforms back.

    Args:
        device: FLOP/s of the unit that forms products, bytes of an element.

    Source: Lavin 2015, arXiv:1509.09308, F(4 x 4, 3 x 3).
    """
    rate, size = device
    points = WIDE_POINTS**shape.wide_axes
    tiles = shape.images * np.maximum(shape.wide_points, 1.0) / points
    m, n, k = {
        "fprop": (tiles, shape.filters, shape.channels), "dgrad": (tiles, shape.channels, shape.filters),
        "wgrad": (shape.filters, shape.channels, tiles),
    }[part]  # fmt: skip
    ratio = np.full_like(tiles, fitted["wide_winograd_ratio"])
    extents = applicable(shape.wide_points > 0, (m, n, k, points * shape.groups))
    costs = tiled(target, extents, rate, ratio, fitted[f"{part}_split_s"], fitted)
    written = shape.groups * points * (tiles * (shape.channels + shape.filters) + shape.channels * shape.filters)
    rewriting = 2 * written * size / _bytes_per_s(target, fitted)  # once written, once read
    products = np.where(shape.wide_points > 0, costs.products, np.inf)
    return costs._replace(products=products, transforms=rewriting)


def unrolled(
    target: Target, shape: Shape, part: str, device: tuple[float, int], fitted: Mapping[str, float]
) -> Costs:  # fmt: skip
    """Return the costs of one product of matrices per image, which is unrolled (or added up) in memory around it.

    Args:
        device: FLOP/s of the unit that forms products, bytes of an element.

    Source: Chellapilla 2006, High performance convolutional neural networks for document processing.
    """
    rate, size = device
    m, n, k = product_of(shape, part)
    each = np.maximum(shape.images, 1.0)
    m, k = (m, k / each) if part == "wgrad" else (m / each, k)
    ratio = np.full_like(m, fitted["unrolled_ratio"])
    image = tiled(target, (m, n, k, shape.groups), rate, ratio, fitted[f"{part}_split_s"], fitted)
    costs = Costs(*(shape.images * cost for cost in image))
    written = np.where(shape.taps > 1, shape.groups * shape.outputs * shape.channels * shape.taps, 0.0)
    rewriting = shape.images * (fitted["unrolled_image_s"] + 2 * written * size / _bytes_per_s(target, fitted))
    return costs._replace(transforms=rewriting)


def _bytes_per_s(target: Target, fitted: Mapping[str, float]) -> float:
    return fitted["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0)
