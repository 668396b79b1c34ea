"""What a pass of a convolution takes: implicit products in tiles and waves, Winograd's algorithm, direct sums."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._conv_scalars import CLASSES
from nearpeak.predict._conv_shapes import Shape, product_of
from nearpeak.predict._form import CaseColumns
from nearpeak.theory.rates import vector_rate

LARGEST = 0.25
"""Largest correction, as a logarithm."""
SHARPNESS = 4.0
"""Power at which products and memory overlap."""
_POINTS = 16
"""Products per pair of channels that F(2 x 2, 3 x 3) keeps apart until the sum over positions is complete."""
Costs = tuple[Any, Any, Any, Any]
"""Seconds of products at full rate, of what the reached share adds, of padding, waves and starts, of split sums."""


def passes_of(cases: CaseColumns) -> tuple[str, ...]:
    """Return the passes of a case."""
    if cases.phase == "forward":
        return ("fprop",)
    names = {"grad_input": "dgrad", "grad_weight": "wgrad"}
    asked = tuple(part for name, part in names.items() if cases.attributes.get(name, True))
    if not asked:
        raise NotModelledError(
            "predict: no form for conv (backward) of the bias alone; ask for grad_input or grad_weight"
        )
    return asked


def fastest(target: Target, dtype: str, shape: Shape, part: str, scalar: dict[str, float]) -> Costs:
    """Return the costs of a pass by the algorithm that takes least time, memory aside."""
    rate = _rate(target, dtype)
    kernels = [_implicit(target, shape, part, rate, scalar), _direct(target, shape, scalar)]
    kernels += [_winograd(target, shape, part, rate, scalar)] if (shape.points > 0).any() else []
    best: Costs = kernels[0]
    for other in kernels[1:]:
        faster = sum(other) < sum(best)
        best = tuple(np.where(faster, new, old) for new, old in zip(other, best, strict=True))
    return best


def moved_elements(shape: Shape) -> Any:
    """Return the elements of both images and of the filters."""
    stored = shape.images * (shape.inputs * shape.channels + shape.outputs * shape.filters)
    return shape.groups * (stored + shape.taps * shape.channels * shape.filters)


def _rate(target: Target, dtype: str) -> float:
    """Return the rate of the fastest unit that forms such products; of fp32 where a format has no unit of its own."""
    for name in (dtype, "fp32"):
        rates = [target.flop_per_s(unit) for unit in DTYPES[name].matrix_units if unit in target.peaks]
        if rates:
            return max(rates)
    return vector_rate(target, "fp32")[1]


def _implicit(target: Target, shape: Shape, part: str, rate: float, scalar: Mapping[str, float]) -> Costs:
    """Return the costs as a product of matrices, by the best tile and split."""
    each = np.array([scalar[f"{part}_{kind}_ratio"] for kind in CLASSES])
    return _tiled(target, (*product_of(shape, part), shape.groups), rate, each[_class_of(shape)], scalar)


def _class_of(shape: Shape) -> Any:
    """Return the position in CLASSES of each case."""
    one, strided = shape.taps == 1, shape.strides > 1
    plain = np.where(shape.taps < 9, 3, np.where(shape.taps == 9, 2, 4))
    alone = np.where(one, np.where(strided, 1, 0), np.where(strided, 5, plain))
    return np.where(shape.groups > 1, np.where(shape.channels == 1, 7, 6), alone)


def _winograd(target: Target, shape: Shape, part: str, rate: float, scalar: dict[str, float]) -> Costs:
    """Return the costs of Winograd's algorithm, infinite where it does not apply."""
    points = shape.images * np.maximum(shape.points, 1.0)
    m, n, k = {
        "fprop": (points, shape.filters, shape.channels), "dgrad": (points, shape.channels, shape.filters),
        "wgrad": (_POINTS * shape.filters, shape.channels, points / _POINTS),
    }[part]  # fmt: skip
    ratio = scalar[f"{part}_winograd_ratio"]
    products, *others = _tiled(
        target,
        (m, n, k, shape.groups),
        rate,
        np.full_like(points, ratio),
        scalar | {"edge_elements": scalar["winograd_edge_elements"]},
    )
    return (np.where(shape.points > 0, products, np.inf), others[0], others[1], others[2])


def _direct(target: Target, shape: Shape, scalar: Mapping[str, float]) -> Costs:
    """Return the costs of adding up products one after the other, as depthwise kernels do."""
    products = shape.flop / vector_rate(target, "fp32")[1]
    none = np.zeros_like(products)
    return (products, products * (1 / scalar["direct_ratio"] - 1), none, none)


def _tiled(
    target: Target, extents: tuple[Any, Any, Any, Any], rate: float, ratio: Any, scalar: Mapping[str, float]
) -> Costs:  # fmt: skip
    """Return the costs of `batch` products [m,k] x [k,n] by the tile and split that take least time."""
    from nearpeak.predict._conv_kernel import fill

    m, n, k, batch = (np.ascontiguousarray(column) for column in extents)
    total, split = np.empty(len(m)), np.empty(len(m))
    names = ("tail_ratio", "depth_elements", "edge_elements", "tile_start_s", "split_s")
    device = np.array([rate / target.sm_count, target.sm_count, target.dram.bandwidth_bytes_per_s or 1.0])
    fill(m, n, k, batch, np.ascontiguousarray(ratio), device, np.array([scalar[name] for name in names]), total, split)
    products = 2 * m * n * k * batch / rate
    ceiling = products * (1 / ratio - 1)
    return (products, ceiling, total - split - products - ceiling, split)
