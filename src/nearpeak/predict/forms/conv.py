"""Convolutions and their gradients: implicit products in tiles and waves, Winograd's algorithm, direct sums."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._conv_scalars import CLASSES, PASSES, SCALARS
from nearpeak.predict._conv_shapes import Shape, product_of, shape_of
from nearpeak.predict._form import CaseColumns, Form, Rows, Setting
from nearpeak.theory.rates import vector_rate

TERMS = ("launch", "products", "products_ceiling", "padding", "split_k", "memory", "host", "library")
"""Parts of a predicted time."""
_ALIKE = {"fp16": ("fp16", "bf16", "fp32"), "bf16": ("bf16", "fp16", "fp32"), "int8": ("fp16", "bf16", "fp32")}
_POINTS = 16
"""Products per pair of channels that F(2 x 2, 3 x 3) keeps apart until the sum over positions is complete."""
_LARGEST_CORRECTION = 0.25
"""Largest correction, as a logarithm."""
_SHARPNESS = 4.0
_HOST_SHARPNESS = 12.0
Costs = tuple[Any, Any, Any, Any]
"""Seconds of products at full rate, of what the reached share adds, of padding, waves and starts, of split sums."""


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    dtype = dtypes["dtype"]
    return tuple(dict.fromkeys((dtype, *_ALIKE.get(dtype, ()), "fp32")))


def _rows(target: Target, cases: CaseColumns, scalars: Any, setting: Setting) -> Rows:
    """Return the times of the passes that are asked for, one kernel after the other.

    Source: implicit products as in Chetlur et al. 2014, arXiv:1410.0759.
    """
    if target.kind != "gpu" or target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: no prediction of conv; GPUs that state a memory bandwidth only")
    scalar = dict(zip((one.name for one in SCALARS), scalars[: len(SCALARS)], strict=True))
    shape = shape_of(cases.axes)
    passes = [_pass(target, cases, shape, part, scalar) for part in _asked(cases)]
    if len(scalars) > len(SCALARS):
        knots = np.asarray(scalars[len(SCALARS) :]).reshape(len(PASSES), -1)
        for place, one in zip(_correction_parts(cases), passes, strict=True):
            one["library"] = sum(one.values()) * np.expm1(_corrected(cases, knots[place]))
    parts = {name: sum(one[name] for one in passes) for name in TERMS if name in passes[0]}
    kernel_s = sum(parts.values())
    if setting.host_timed:
        floor, gap_s = scalar["host_floor_s"] * len(passes), scalar["host_gap_s"]
        seen_s = ((gap_s + kernel_s) ** _HOST_SHARPNESS + floor**_HOST_SHARPNESS) ** (1 / _HOST_SHARPNESS)
        parts["host"] = seen_s - kernel_s
    columns = np.stack([parts.get(name, np.zeros_like(kernel_s)) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _correction_axes(cases: CaseColumns) -> tuple[Any, Any, Any]:
    """Return output positions, filters, and channels times taps of all groups: what libraries choose kernels by."""
    shape = shape_of(cases.axes)
    depth = shape.groups * shape.channels * shape.taps
    return np.maximum(shape.images * shape.outputs, 1.0), shape.groups * shape.filters, depth


def _correction_parts(cases: CaseColumns) -> tuple[int, ...]:
    """Return the positions in PASSES of the passes of a case: each has kernels, and a correction, of its own."""
    return tuple(list(PASSES).index(part) for part in _asked(cases))


def _corrected(cases: CaseColumns, knots: Any) -> Any:
    """Return the correction of each row as a logarithm, bounded."""
    from nearpeak.predict._interpolation import correction_at

    axes = zip(*_correction_axes(cases), strict=True)
    return np.clip([correction_at(knots, *row) for row in axes], -_LARGEST_CORRECTION, _LARGEST_CORRECTION)


def _asked(cases: CaseColumns) -> tuple[str, ...]:
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


def _pass(
    target: Target, cases: CaseColumns, shape: Shape, part: str, scalar: dict[str, float]
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of one pass by the algorithm that takes least time."""
    rate, size = _rate(target, cases.dtypes["dtype"]), DTYPES[cases.dtypes["dtype"]].bits_count / 8
    kernels = [_implicit(target, shape, part, rate, scalar), _direct(target, shape, scalar)]
    kernels += [_winograd(target, shape, part, rate, scalar)] if (shape.points > 0).any() else []
    best: Costs = kernels[0]
    for other in kernels[1:]:
        faster = sum(other) < sum(best)
        best = tuple(np.where(faster, new, old) for new, old in zip(other, best, strict=True))
    products, ceiling, padding, split = best
    compute_s = products + ceiling + padding
    stored = shape.images * (shape.inputs * shape.channels + shape.outputs * shape.filters)
    moved = size * shape.groups * (stored + shape.taps * shape.channels * shape.filters)
    memory_s = moved / (scalar["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0))
    exposed_s = (compute_s**_SHARPNESS + memory_s**_SHARPNESS) ** (1 / _SHARPNESS) - compute_s
    return {
        "launch": np.full_like(compute_s, scalar["launch_s"]), "products": products, "products_ceiling": ceiling,
        "padding": padding, "split_k": split, "memory": exposed_s,
    }  # fmt: skip


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


FORM = Form(
    name="conv",
    ops=("conv",),
    version="conv-2",
    scalars=SCALARS,
    terms=TERMS,
    regimes={
        "launch": "launch", "products": "products", "products_ceiling": "products", "padding": "padding",
        "split_k": "padding", "memory": "memory", "host": "launch", "library": "products",
    },
    grids={
        "conv": {
            "batch": (1, 16, 64), "in_channels": (8, 64, 512), "out_channels": (64, 512), "h": (7, 28, 112), "w": (28,),
            "kh": (1, 3), "kw": (1, 3), "sh": (1, 2), "sw": (1,),
        },
    },
    correction_axes=_correction_axes,
    correction_parts=_correction_parts,
    correction_count=len(PASSES),
    groups=_groups,
    rows=_rows,
    phases=("forward", "backward"),
)  # fmt: skip
