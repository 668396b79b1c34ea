"""Time of a convolution pass: implicit GEMM, Winograd's algorithm, or direct summation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.conv.conv_coefficients import CLASSES
from nearpeak.prediction.conv.conv_shapes import Shape, product_of
from nearpeak.prediction.conv.conv_tiles import Costs, applicable, tiled
from nearpeak.prediction.conv.rewritten_images import unrolled, wide_winograd
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.product_units import units_of

SHARPNESS = 4.0
"""Power at which products and memory overlap."""
_POINTS = 16
"""Products per pair of channels that F(2 x 2, 3 x 3) keeps apart until the sum over positions is complete."""
_CLOCK_SHARPNESS = 2.0
"""Power at which a clock rises with the length of a kernel; above 2 longer work could take less time."""
_TILE_UNIT = 16
"""Multiple of positions for kernels without padding; other numbers run on slower ones."""
_ROW = 4
"""Positions of an image that a kernel of one tap loads at once where their number allows."""


def passes_of(cases: CaseColumns) -> tuple[str, ...]:
    """Return the passes of a case."""
    if cases.phase == "forward":
        return ("fprop",)
    names = {"grad_input": "dgrad", "grad_weight": "wgrad"}
    passes = tuple(part for name, part in names.items() if cases.attributes.get(name, True))
    if not passes:
        raise NotModelledError(
            "predict: no model for conv (backward) of the bias alone; ask for grad_input or grad_weight"
        )
    return passes


def fastest(target: Target, dtype: str, shape: Shape, part: str, fitted: dict[str, float]) -> Costs:
    """Return the costs of a pass by the algorithm that takes least time, memory aside."""
    rate = _rate(target, dtype)
    device = (rate, DTYPES[dtype].bits_count // 8)
    products = shape.flop / vector_rate(target, "fp32")[1]
    none = np.zeros_like(products)
    ceiling = products * (1 / fitted[f"{part}_direct_ratio"] - 1)
    direct = Costs(products, ceiling, none, none, none, none, none, none)
    kernels = [_implicit(target, shape, part, rate, fitted), direct]
    kernels.append(unrolled(target, shape, part, device, fitted))
    kernels += [_winograd(target, shape, part, rate, fitted)] if (shape.points > 0).any() else []
    kernels += [wide_winograd(target, shape, part, device, fitted)] if (shape.wide_points > 0).any() else []
    best: Costs = kernels[0]
    for other in kernels[1:]:
        faster = sum(other) < sum(best)
        best = Costs(*(np.where(faster, new, old) for new, old in zip(other, best, strict=True)))
    return best


def moved_elements(shape: Shape) -> Any:
    """Return the elements of both images and of the filters."""
    stored = shape.images * (shape.inputs * shape.channels + shape.outputs * shape.filters)
    return shape.groups * (stored + shape.taps * shape.channels * shape.filters)


def clock_share(full_s: Any, fitted: Mapping[str, float], setting: Setting) -> Any:
    """Return the time that a low idle clock adds to kernels, as a share of their time at full clock."""
    if not setting.is_alone:
        return np.zeros_like(full_s)
    return (fitted["slow_clock_ratio"] - 1) / (1 + (full_s / fitted["clock_rise_s"]) ** _CLOCK_SHARPNESS)


def _rate(target: Target, dtype: str) -> float:
    """Return the rate of the fastest unit that forms such products; of fp32 where no unit multiplies the format."""
    for name in (dtype, "fp32"):
        rates = [target.flop_per_s(unit) for unit in units_of(target, DTYPES[name])]
        if rates:
            return max(rates)
    return vector_rate(target, "fp32")[1]


def _implicit(target: Target, shape: Shape, part: str, rate: float, fitted: Mapping[str, float]) -> Costs:
    """Return the costs as a product of matrices, by the best tile and split."""
    each = np.array([fitted[f"{part}_{kind}_ratio"] for kind in CLASSES])
    row = shape.outputs if part == "fprop" else shape.inputs
    uneven = (shape.taps == 1) & (shape.strides == 1) & (row % _ROW > 0)
    slower = np.where(uneven, fitted["row_ratio"], 1.0)
    slower = slower * np.where(shape.images * row % _TILE_UNIT > 0, fitted[f"{part}_ragged_ratio"], 1.0)
    ratio = each[class_of(shape)] / slower
    extents = (*product_of(shape, part), shape.groups)
    return tiled(target, extents, rate, ratio, fitted[f"{part}_split_s"], fitted)


def class_of(shape: Shape) -> Any:
    """Return the position in CLASSES of the kernel of each case."""
    single_tap, strided = shape.taps == 1, shape.strides > 1
    plain = np.where(shape.taps < 9, 3, np.where(shape.taps == 9, 2, 4))
    alone = np.where(single_tap, np.where(strided, 1, 0), np.where(strided, 5, plain))
    return np.where(shape.groups > 1, np.where(shape.channels == 1, 7, 6), alone)


def _winograd(target: Target, shape: Shape, part: str, rate: float, fitted: dict[str, float]) -> Costs:
    """Return the costs of Winograd's algorithm, infinite where it does not apply."""
    points = shape.images * np.maximum(shape.points, 1.0)
    m, n, k = {
        "fprop": (points, shape.filters, shape.channels), "dgrad": (points, shape.channels, shape.filters),
        "wgrad": (_POINTS * shape.filters, shape.channels, points / _POINTS),
    }[part]  # fmt: skip
    ratio = np.full_like(points, fitted[f"{part}_winograd_ratio"])
    edges = fitted | {"edge_elements": fitted["winograd_edge_elements"]}
    split_s = fitted[f"{part}_split_s"]
    extents = applicable(shape.points > 0, (m, n, k, shape.groups))
    costs = tiled(target, extents, rate, ratio, split_s, edges)
    return costs._replace(products=np.where(shape.points > 0, costs.products, np.inf))
