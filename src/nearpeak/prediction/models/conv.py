"""Convolutions and their gradients: implicit GEMM, Winograd's algorithm, im2col, direct summation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.conv.conv_coefficients import COEFFICIENTS
from nearpeak.prediction.conv.conv_shapes import Shape, shape_of
from nearpeak.prediction.conv.pass_costs import SHARPNESS, clock_share, fastest, moved_elements, passes_of
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting

TERMS = (
    "launch",
    "products",
    "products_ceiling",
    "tile_padding",
    "tile_edges",
    "wave_tail",
    "tile_start",
    "split_k",
    "transforms",
    "memory",
    "clock",
    "host",
)
"""Parts of a predicted time."""
_TILES = ("tile_padding", "tile_edges", "wave_tail", "tile_start")
"""Parts that corrections and intervals know as one, `padding`: what tiles and waves add to products."""
_ALIKE = {"fp16": ("fp16", "bf16", "fp32"), "bf16": ("bf16", "fp16", "fp32"), "int8": ("fp16", "bf16", "fp32")}
_HOST_SHARPNESS = 12.0


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    dtype = dtypes["dtype"]
    return tuple(dict.fromkeys((dtype, *_ALIKE.get(dtype, ()), "fp32")))


def _rows(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the times of the requested passes, whose kernels run in sequence.

    Source: implicit products as in Chetlur et al. 2014, arXiv:1410.0759.
    """
    if target.kind != "gpu" or target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: no prediction of conv; GPUs that state a memory bandwidth only")
    fitted = dict(zip((item.name for item in COEFFICIENTS), coefficients, strict=True))
    shape = shape_of(cases.axes)
    passes = [_pass(target, cases, shape, part, fitted, setting) for part in passes_of(cases)]
    parts = {name: sum(item[name] for item in passes) for name in TERMS if name in passes[0]}
    kernel_s = sum(parts.values())
    if setting.host_timed:
        floor, gap_s = fitted["host_floor_s"] * len(passes), fitted["host_gap_s"]
        seen_s = ((gap_s + kernel_s) ** _HOST_SHARPNESS + floor**_HOST_SHARPNESS) ** (1 / _HOST_SHARPNESS)
        parts["host"] = seen_s - kernel_s
    columns = np.stack([parts.get(name, np.zeros_like(kernel_s)) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _pass(
    target: Target, cases: CaseColumns, shape: Shape, part: str, fitted: dict[str, float], setting: Setting
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of one pass by the algorithm that takes least time."""
    costs = fastest(target, cases.dtypes["dtype"], shape, part, fitted)
    compute_s = costs.compute_s
    size = DTYPES[cases.dtypes["dtype"]].bits_count / 8
    memory_s = size * moved_elements(shape) / (fitted["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0))
    exposed_s = (compute_s**SHARPNESS + memory_s**SHARPNESS) ** (1 / SHARPNESS) - compute_s
    parts = {"launch": np.full_like(compute_s, fitted["launch_s"]), **costs._asdict(), "memory": exposed_s}
    full_s = sum(parts.values())
    return parts | {"clock": full_s * clock_share(full_s, fitted, setting)}


def _corrected_by(_target: Target, cases: CaseColumns, setting: Setting) -> Mapping[str, Any]:
    passes = {f"pass={part}": 1.0 for part in passes_of(cases)}
    return {**cases.axes, **passes, "is_alone": float(setting.is_alone)}


def _kernels(cases: CaseColumns) -> tuple[CaseColumns, ...]:
    """Return the passes as separate cases: libraries choose kernels for each."""
    if len(passes_of(cases)) == 1:
        return (cases,)
    alone = ({"grad_input": True, "grad_weight": False}, {"grad_input": False, "grad_weight": True})
    return tuple(replace(cases, attributes={**cases.attributes, **choice}) for choice in alone)


KERNEL_MODEL = KernelModel(
    name="conv",
    ops=("conv",),
    version="conv-3",
    coefficients=COEFFICIENTS,
    terms=TERMS,
    regimes={
        "launch": "launch", "products": "products", "products_ceiling": "products",
        **dict.fromkeys(_TILES, "padding"), "split_k": "padding", "transforms": "memory", "clock": "launch",
        "memory": "memory", "host": "launch", "library": "products",
    },
    bundles={"padding": _TILES},
    grids={
        "conv": {
            "batch": (1, 16, 64), "in_channels": (8, 64, 512), "out_channels": (64, 512), "h": (7, 28, 112), "w": (28,),
            "kh": (1, 3), "kw": (1, 3), "sh": (1, 2), "sw": (1,),
        },
    },
    correction_columns=_corrected_by,
    kernels=_kernels,
    admits_any=lambda cases: shape_of(cases.axes).taps > 1,  # libraries also run these by Winograd's algorithm and FFT
    groups=_groups,
    is_by_format=True,
    rows=_rows,
    phases=("forward", "backward"),
)  # fmt: skip
