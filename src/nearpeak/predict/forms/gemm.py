"""Matrix products: tiles, waves, split K, cache and memory traffic, store, launch and clock."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES, DType
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._form import CaseColumns, Form, Rows, Scalar, Setting

SCALARS = (
    Scalar(
        name="launch_s", low_value=0.2e-6, high_value=60e-6, usual_value=1.8e-6,
        text="start and end of one kernel", pinned_by="smallest kernels",
    ),
    Scalar(
        name="tensor_ratio", low_value=0.25, high_value=1.15, usual_value=0.9,
        text="reached share of the product rate", pinned_by="large products with many waves",
    ),
    Scalar(
        name="dram_ratio", low_value=0.3, high_value=1.0, usual_value=0.87,
        text="reached share of the memory rate when reading", pinned_by="m <= 16 with weights beyond the cache",
    ),
    Scalar(
        name="store_ratio", low_value=0.1, high_value=1.0, usual_value=0.8,
        text="reached share of the memory rate when writing", pinned_by="large m and n with k <= 256",
    ),
    Scalar(
        name="l2_bytes_per_clock", low_value=6, high_value=300, usual_value=64,
        text="cache bandwidth per multiprocessor", pinned_by="weights inside the cache, small tiles",
    ),
    Scalar(
        name="tile_start_s", low_value=0.0, high_value=8e-6, usual_value=0.5e-6,
        text="filling and draining the pipeline of one wave", pinned_by="several waves with k from 256 to 1024",
    ),
    Scalar(
        name="edge_elements", low_value=0.0, high_value=80.0, usual_value=5.0,
        text="cost of small tiles, as a wider edge", pinned_by="products too small for large tiles",
    ),
    Scalar(
        name="split_s", low_value=0.1e-6, high_value=200e-6, usual_value=2e-6,
        text="adding up the parts of a split sum", pinned_by="small m and n with k >= 16384",
    ),
    Scalar(
        name="saturation_ratio", low_value=0.02, high_value=1.0, usual_value=0.3,
        text="share of the multiprocessors that saturates memory", pinned_by="few tiles with long k",
    ),
    Scalar(
        name="residency_ratio", low_value=0.05, high_value=3.0, usual_value=0.5,
        text="share of the cache that stays resident", pinned_by="weights around the size of the cache",
    ),
    Scalar(
        name="hidden_tail_ratio", low_value=0.0, high_value=0.97, usual_value=0.5,
        text="share of the last partial wave that persistent kernels hide", pinned_by="tiles just above whole waves",
    ),
    Scalar(
        name="clock_ratio", low_value=0.0, high_value=3.0, usual_value=0.2,
        text="loss of clock under sustained products", pinned_by="one shape from 50 us to 20 ms",
    ),
    Scalar(
        name="clock_s", low_value=0.05e-3, high_value=20e-3, usual_value=1e-3,
        text="time after which the clock falls", pinned_by="one shape from 50 us to 20 ms",
    ),
    Scalar(
        name="step_s", low_value=0.0, high_value=400e-9, usual_value=100e-9,
        text="latency of one step along k, 128 bytes deep", pinned_by="few tiles with long k",
    ),
    Scalar(
        name="exposed_store_ratio", low_value=0.0, high_value=8.0, usual_value=2.0,
        text="share of the store of one wave that nothing hides", pinned_by="one wave with small k",
    ),
    Scalar(
        name="grid_ramp_s", low_value=0.0, high_value=6e-6, usual_value=0.8e-6,
        text="starting a full grid against starting one tile", pinned_by="one tile against one wave",
    ),
    Scalar(
        name="quantise_s", low_value=0.0, high_value=20e-6, usual_value=2e-6,
        text="start and end of quantising the input", pinned_by="smallest products with quantised input",
    ),
    Scalar(
        name="quantise_ramp_s", low_value=0.0, high_value=30e-6, usual_value=3e-6,
        text="quantising a full grid of rows against a few", pinned_by="m from 512 to 4096 with small n",
    ),
    Scalar(
        name="quantise_passes_count", low_value=0.0, high_value=30.0, usual_value=2.0,
        text="times the input crosses the cache while it is quantised", pinned_by="large m and k, small n",
    ),
)  # fmt: skip
TERMS = (
    "launch", "grid_ramp", "tensor", "tensor_ceiling", "tile_padding", "wave_tail", "tile_start", "l2", "dram",
    "dram_ceiling", "few_tiles", "latency", "store", "split_k", "clock", "quantise",
)  # fmt: skip
"""Parts of a predicted time, in the order of the columns that the kernel writes."""
_ALIKE = {
    "fp16": "bf16", "fp8_e4m3": "fp8_tensor", "fp8_e5m2": "fp8_tensor", "fp8_e4m3fnuz": "fp8_tensor",
    "fp8_e5m2fnuz": "fp8_tensor", "fp8_row": "fp8_tensor", "fp8_block_1x128": "fp8_block", "mxfp8": "fp8_block",
    "mxfp4": "nvfp4", "fp4_e2m1": "nvfp4", "int8": "fp8_tensor", "int8_tensor": "fp8_tensor", "int8_row": "fp8_tensor",
    "int8_weight_only": "bf16", "int4_weight_only": "bf16", "int4_weight_only_64": "bf16",
    "int4_weight_only_32": "bf16", "mxfp4_weight_only": "bf16", "fp64": "fp32",
}  # fmt: skip
"""Format whose scalars stand in where a format has none of its own."""
_BATCHED_TILES = {
    "maxwell": ((64, 128),), "pascal": ((64, 128),), "turing": ((64, 128), (64, 64), (32, 128)),
    "volta": ((64, 64), (128, 32), (32, 128)), "ampere": ((128, 128),),
}  # fmt: skip
"""Tiles along m and n on which NVIDIA's library runs batched fp32 products, by kernel names in NeuSight's tables."""
_LAST = ("fp8_tensor", "bf16", "fp32")


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats whose scalars may serve, best first."""
    dtype = dtypes["dtype"]
    start = (dtype, _ALIKE.get(dtype, dtype))
    later = ("fp32",) if dtype in ("fp32", "fp64") else _LAST
    return tuple(dict.fromkeys((*start, *later)))


def _rows(target: Target, cases: CaseColumns, scalars: Any, setting: Setting) -> Rows:
    """Return the times of products [m,k] x [k,n], `batch` of them.

    Source: tile and wave arithmetic as in NeuSight (ASPLOS'25) and Origami; unique bytes per cache level counted here.
    """
    from nearpeak.predict import _gemm_kernel as kernel

    columns = np.broadcast_arrays(
        *(np.asarray(cases.axes.get(name, 1), dtype=np.float64) for name in ("m", "n", "k", "batch"))
    )
    m, n, k, batch = (np.atleast_1d(np.ascontiguousarray(column)) for column in columns)
    parts, times = np.empty((len(m), len(TERMS))), np.empty(len(m))
    device = _device(target, cases.dtypes, setting)
    for chosen, (tile_m, tile_n) in _tile_sets(target, cases.dtypes["dtype"], batch):
        part, total = parts[chosen], times[chosen]
        kernel.fill(
            m[chosen], n[chosen], k[chosen], batch[chosen], device, scalars, tile_m, tile_n, kernel.SPLITS, part, total
        )
        parts[chosen], times[chosen] = part, total
    return Rows(time_s=times, parts_s=parts)


def _tile_sets(target: Target, dtype: str, batch: Any) -> list[tuple[Any, Any]]:
    """Return rows with the tiles that libraries have for them."""
    from nearpeak.predict import _gemm_kernel as kernel

    if dtype not in ("fp32", "fp64"):
        return [(slice(None), kernel.TENSOR_TILES)]
    known = _BATCHED_TILES.get(target.architecture)
    if known is None:
        return [(slice(None), kernel.VECTOR_TILES)]
    tiles = (np.array([float(m) for m, _ in known]), np.array([float(n) for _, n in known]))
    sets = [(np.flatnonzero(batch > 1), tiles), (np.flatnonzero(batch <= 1), kernel.VECTOR_TILES)]
    return [(rows, each) for rows, each in sets if len(rows)]


def _device(target: Target, dtypes: Mapping[str, str], setting: Setting) -> Any:
    """Return the figures of the device that the kernel reads, in its order."""
    a, b, out = _formats(dtypes)
    unit = _unit(target, a if a.bits_count >= b.bits_count else b)
    if target.dram.bandwidth_bytes_per_s is None or target.l2.capacity_bytes is None:
        raise NotModelledError(f"{target.name}: predict needs the memory bandwidth and the capacity of its last cache")
    a_bytes, b_bytes = _stored(a, dtypes["dtype"]), _stored(b, dtypes["dtype"])
    peak = target.peaks[unit]
    return np.array([
        peak.flop_per_s, target.sm_count, target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes, peak.clock_hz,
        a_bytes, b_bytes, out.bits_count / 8, 2.0 if setting.quantises_input else 0.0, setting.weight_copies_count,
        128 // max(a.bits_count / 8, 0.5),
    ])  # fmt: skip


def _formats(dtypes: Mapping[str, str]) -> tuple[DType, DType, DType]:
    """Return the formats of A, B and the product."""
    dtype = DTYPES[dtypes["dtype"]]
    scheme = dtype.scheme
    if scheme is not None:
        return DTYPES[scheme.a.dtype], DTYPES[scheme.b.dtype], DTYPES[scheme.out]
    return dtype, DTYPES[dtypes.get("b_dtype", dtype.name)], DTYPES[dtypes.get("out_dtype", dtype.name)]


def _stored(operand: DType, scheme: str) -> float:
    """Return bytes per element, with the scales of a scheme whose blocks are short."""
    extra = {"nvfp4": 1 / 16, "mxfp4": 1 / 32, "mxfp8": 1 / 32}.get(scheme, 0.0)
    return operand.bits_count / 8 + extra


def _unit(target: Target, dtype: DType) -> str:
    """Return the fastest unit that forms such products directly: libraries do not add up partial products."""
    units = [unit for unit in dtype.matrix_units if unit in target.peaks]
    if target.kind != "gpu" or not units:
        raise NotModelledError(
            f"{target.name}: no prediction of products of {dtype.name}; GPUs that state a rate for it only"
        )
    return max(units, key=lambda unit: target.peaks[unit].flop_per_s)


FORM = Form(
    name="gemm",
    ops=("gemm", "scaled_gemm"),
    version="gemm-1",
    scalars=SCALARS,
    terms=TERMS,
    regimes={
        "launch": "launch", "grid_ramp": "launch", "quantise": "launch", "tile_start": "launch", "split_k": "launch",
        "latency": "launch", "dram": "dram", "dram_ceiling": "dram", "few_tiles": "dram", "store": "dram",
        "l2": "l2", "tensor": "tensor", "tensor_ceiling": "tensor", "tile_padding": "tensor", "wave_tail": "tensor",
        "clock": "tensor",
    },
    groups=_groups,
    rows=_rows,
    grid={
        "m": (1, 16, 128, 512, 2048, 8192, 8448), "n": (128, 1024, 4096, 8192, 16384), "k": (256, 1024, 4096, 16384),
    },
)  # fmt: skip
