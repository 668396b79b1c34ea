"""Memory-streaming operators (element-wise, norms, reductions, movement, optimizers) and the fallback model."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS
from nearpeak.prediction.calibration.source_spread import WIDEST
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, coefficient_ranges
from nearpeak.prediction.product_units import got
from nearpeak.prediction.scalar_or_column import is_number, larger, raised, smaller, summed
from nearpeak.prediction.software_ratio import is_measured
from nearpeak.prediction.stream.stream_parts import (
    BLOCK_BYTES,
    CHUNKED_KERNELS,
    GATHER_RATIO,
    GATHERING,
    SHARPNESS,
    indexed_s,
    is_chunked,
    resources,
)
from nearpeak.prediction.work_columns import WorkColumns, work_columns, work_numbers

COEFFICIENTS = coefficient_ranges(
    # name, least, largest, usual, meaning, measurements that identify it
    ("launch_s", 0.2e-6, 12e-6, 2e-6, "start and end of one kernel", "smallest kernels, timed on the device"),
    ("host_floor_s", 5e-6, 150e-6, 28e-6, "least time of one call seen from the host", "smallest calls"),
    ("host_gap_s", 1e-6, 100e-6, 16e-6, "what the host adds to a long kernel", "calls of two to ten times the floor"),
    ("grid_ramp_s", 0.0, 10e-6, 1e-6, "starting a full grid against starting one block", "20 KiB against 20 MiB"),
    ("read_ratio", 0.05, 1.0, 0.88, "reached share of the memory rate when reading", "sums of long tensors"),
    ("write_ratio", 0.05, 1.0, 0.85, "reached share of the memory rate when writing", "unary and binary functions"),
    ("write_residency_ratio", 0.0, 1.0, 0.3, "share of the cache that absorbs writes", "around its size"),
    ("vector_ratio", 0.02, 1.0, 0.4, "reached share of the rate of vector units", "many operations per byte"),
    ("special_flop_count", 1.0, 400.0, 20.0, "vector FLOP that one special function takes", "pow, tanh, gelu"),
    ("row_s", 0.0, 8e-6, 0.3e-6, "time that one row occupies a multiprocessor, besides its bytes", "many short rows"),
    ("row_bytes_per_clock", 0.5, 256.0, 32.0, "bytes of rows per clock and multiprocessor", "long rows in cache"),
    ("row_passes_count", 0.0, 3.0, 1.0, "times rows are read again", "rows beyond the cache"),
    ("row_residency_ratio", 0.02, 2.0, 0.4, "share of the cache that keeps rows between passes", "rows of 2 to 64 KiB"),
    ("unaligned_ratio", 0.3, 1.0, 0.9, "rate of rows that are no multiple of 16 bytes", "odd columns"),
    ("gated_ratio", 0.2, 1.0, 0.9, "rate of gated activations, whose operands lie in one tensor", "swiglu"),
    ("tensor_ratio", 0.02, 1.1, 0.6, "reached share of the product rate", "large products"),
)  # fmt: skip
"""The coefficients of the model: ranges, meaning, what pins each down; the kernel reads them in this order."""

TERMS = (
    "launch", "grid_ramp", "read", "read_ceiling", "write", "write_ceiling", "passes", "alignment", "rows", "vector",
    "tensor", "tensor_ceiling", "host",
)  # fmt: skip
"""Parts of a predicted time."""
_OWN = ("softmax", "rms_norm", "quantise", "rotary_embedding", "embedding")
"""Operators that were measured themselves."""
_MEASURED = (*_OWN, "elementwise", "layer_norm", "gemm")
_UNSEEN_WIDENING, _COARSE_WIDENING = 2.5, 12.0
"""Powers by which intervals widen for operators without measurements: those of the same kind, and all others."""
_DELTA_RULE = "delta_rule"
_DELTA_SPREADS = {True: (0.94, 1.43), False: (0.69, 0.25)}
"""Spread of delta rules, over sequences and of single steps, faster and slower in logarithms: 5th and 95th
percentile of the board that is farthest off among A100, B200, H100 and L40S, folds 0 and 1 of AIConfigurator's tables
(ai-dynamo 095f58a), rows aside that beat their bound, as their states lie in the cache.
"""
_OTHER_MAKER_SLOWER = 1.38
"""The same beside it for boards of other makers: steps of aiter on the MI300X (ROCm/aiter e404860), folds 0 and 1."""
_GRADIENT_SPREAD = (math.log(WIDEST),) * 2
"""Of gradients of delta rules no table was found."""
_KINDS = {
    "norm": ("norm", "softmax"), "pointwise": (), "movement": (), "optimizer": (), "reduction": ("norm",),
    "product": ("product",), "convolution": ("product",), "attention": ("product",),
}  # fmt: skip
"""Groups of coefficients by family of operators, before those of element-wise functions."""
_ALIKE = {"embedding_bag": "embedding", "gather": "embedding", "dequantise": "quantise", "cross_entropy": "softmax"}
WorkBy = Callable[[Target, CaseColumns], WorkColumns]
"""Gives the least work of cases."""
_LEAST = float(np.finfo(np.float64).tiny)
"""Stands for nothing where one divides by it."""
_HOST_SHARPNESS = 12.0
"""Power at which the host's floor gives way to the kernel: measured corners are sharp."""
_MEMORY = [[coefficient.name for coefficient in COEFFICIENTS].index(name) for name in ("read_ratio", "write_ratio")]
_LEAST_BY_MEMORY = 0.6
"""Share of the rate of memory from which on kernels may be bound by it: element-wise ones reach 0.65 to 0.94."""


def _groups(op: str, _dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the groups of coefficients that may serve, best first."""
    group = op if op in _OWN else _ALIKE.get(op)
    return tuple(dict.fromkeys((*((group,) if group else ()), *_KINDS[OPS[op].family], "pointwise")))


def _rows(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the times of cases from their least work, those of one case too as columns."""
    if all(isinstance(extent, int) for extent in cases.axes.values()):
        row = _row(target, cases, coefficients, setting)
        return Rows(time_s=np.array([row.time_s]), parts_s=np.array([row.parts_s]))
    columns = np.stack(_terms(target, cases, work_columns, coefficients, setting), 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _row(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the time of one case."""
    parts = _terms(target, cases, work_numbers, coefficients, setting)
    return Rows(time_s=summed(parts), parts_s=parts)


def _terms(target: Target, cases: CaseColumns, work_by: WorkBy, coefficients: Any, setting: Setting) -> list[Any]:
    """Return the terms of the times of cases from their least work, columns or numbers as `work_by` gives it.

    Source: derived; bytes at the reached share of the pin rate, rows of norms as blocks that read again what the cache
    does not keep, special functions as vector instructions, roofline of products.
    """
    if target.kind != "gpu" or target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(
            f"{target.name}: no prediction of {cases.op}; GPUs that state a memory bandwidth only{got(target)}"
        )
    work = work_by(target, cases)
    fitted = dict(
        zip((coefficient.name for coefficient in COEFFICIENTS), np.asarray(coefficients).tolist(), strict=True)
    )
    is_eager = setting.is_eager or (
        setting.software == "pytorch" and is_measured("stream", "pointwise", target, setting.software)
    )
    parts = _parts(target, cases, work, fitted, is_eager=is_eager)
    kernel_s = sum(parts.values())
    if setting.host_timed:
        floor = fitted["host_floor_s"] * larger(work.launch_count, 1)
        both = raised(fitted["host_gap_s"] + kernel_s, _HOST_SHARPNESS) + raised(floor, _HOST_SHARPNESS)
        seen_s = raised(both, 1 / _HOST_SHARPNESS)
        parts["host"] = seen_s - kernel_s
    nil = 0.0 if is_number(kernel_s) else np.zeros_like(kernel_s)
    return [parts.get(name, nil) for name in TERMS]


def _parts(
    target: Target, cases: CaseColumns, work: WorkColumns, fitted: Mapping[str, float], *, is_eager: bool
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of the time of the kernels themselves."""
    needs = resources(target, cases, work, fitted)
    moved = work.read_bytes + work.write_bytes
    read_ratio, write_ratio = (
        GATHER_RATIO if cases.op in GATHERING else fitted[f"{way}_ratio"] for way in ("read", "write")
    )
    parts = {
        "launch": fitted["launch_s"] * larger(work.launch_count, CHUNKED_KERNELS if is_chunked(cases) else 1),
        "grid_ramp": fitted["grid_ramp_s"] * smaller(1.0, moved / (BLOCK_BYTES * target.sm_count)),
        "read": needs.read_s, "read_ceiling": needs.read_s * (1 / read_ratio - 1),
        "write": needs.write_s, "write_ceiling": needs.write_s * (1 / write_ratio - 1),
        "passes": needs.again_s / read_ratio,
    }  # fmt: skip
    memory_s = sum(parts[name] for name in ("read", "read_ceiling", "write", "write_ceiling", "passes"))
    parts["alignment"] = memory_s * (1 / needs.aligned_ratio - 1)
    vector_s = needs.vector_s + (indexed_s(target, cases) if is_eager else 0.0)
    others = {"rows": needs.rows_s, "vector": vector_s, "tensor": needs.tensor_s}
    memory_s = memory_s + parts["alignment"]
    powers = {name: raised(time_s, SHARPNESS) for name, time_s in others.items()}
    excess = raised(raised(memory_s, SHARPNESS) + sum(powers.values()), 1 / SHARPNESS) - memory_s
    whole = larger(sum(powers.values()), _LEAST)
    parts |= {name: excess * power / whole for name, power in powers.items()}  # how much each prolongs the overlap
    parts["tensor_ceiling"] = parts["tensor"] * (1 - fitted["tensor_ratio"])
    parts["tensor"] = parts["tensor"] * fitted["tensor_ratio"]
    return parts


def _transferred(
    target: Target,
    _dtypes: Mapping[str, str],
    measured: Sequence[tuple[Target, Any]],
    *,
    is_related: bool,  # noqa: ARG001
) -> list[Any]:
    """Return coefficients of kernels that multiprocessors, not memory, hold back, for boards with less memory.

    RMS norms and rotary embeddings move 4.0 and 3.8 bytes per clock and multiprocessor on the A100, 4.8 and 4.3 on the
    H100 (fitted read_ratio), whose memories give 13 to each: 0.3 of them is no property of a memory.
    """
    values = [np.array(vector, dtype=float) for _, vector in measured]
    for (device, _), vector in zip(measured, values, strict=True):
        more = max(_given_bytes(device) / _given_bytes(target), 1.0)
        for place in _MEMORY:
            usual = COEFFICIENTS[place].usual_value
            if vector[place] < _LEAST_BY_MEMORY:
                vector[place] = min(vector[place] * more, max(usual, vector[place]))
    return values


def _given_bytes(device: Target) -> float:
    """Return the bytes that memory gives a multiprocessor in a clock."""
    return (device.dram.bandwidth_bytes_per_s or 1.0) / (device.sm_count * device.clock_hz)


def _widening(op: str, cell: str) -> float:
    """Return the factor of an unmeasured operator's interval: assumptions, as no tables have them.

    Launch and end of a kernel take the same time for all operators.
    """
    if op in _MEASURED:
        return 1.0
    if op == _DELTA_RULE:
        return 0.0  # what their form was seen to miss by is all of their interval
    if _KINDS[OPS[op].family][:1] == ("product",):
        return _COARSE_WIDENING
    return 1.0 if "launch" in cell.split("_") else _UNSEEN_WIDENING


def _extrapolation(target: Target, cases: CaseColumns) -> tuple[Any, Any] | None:
    """Return the additional spread of delta rules, which have a form of their own and no coefficients."""
    if cases.op != _DELTA_RULE:
        return None
    count = np.broadcast_shapes((1,), *(np.shape(column) for column in cases.axes.values()))
    faster, slower = _GRADIENT_SPREAD if cases.phase != "forward" else _DELTA_SPREADS[is_chunked(cases)]
    if target.vendor != "NVIDIA":
        slower = math.hypot(slower, _OTHER_MAKER_SLOWER)
    return np.full(count, faster), np.full(count, slower)


_LENGTHS = (2**12, 2**16, 2**20, 2**23, 2**26)
_ROWS: Mapping[str, tuple[int | str, ...]] = {"rows": (1, 64, 1024, 16384), "columns": (128, 1000, 4096, 32768)}
_GRIDS: Mapping[str, Mapping[str, tuple[int | str, ...]]] = {
    "elementwise": {"function": ("relu", "gelu", "tanh", "silu"), "elements": _LENGTHS},
    "softmax": _ROWS,
    "rms_norm": {"rows": _ROWS["rows"], "hidden": _ROWS["columns"]},
    "layer_norm": {"rows": _ROWS["rows"], "hidden": _ROWS["columns"]},
    "reduce": {"outputs": _ROWS["rows"], "reduced": _ROWS["columns"]},
    "embedding": {"tokens": (1, 256, 8192), "dim": (64, 1024, 8192), "vocab": (1000, 32000, 128000)},
    "copy": {"elements": _LENGTHS},
}
"""Candidates of `calibrate plan`."""

KERNEL_MODEL = KernelModel(
    name="stream",
    ops=OPS.names(),
    version="stream-1",
    coefficients=COEFFICIENTS,
    terms=TERMS,
    regimes={
        "launch": "launch", "grid_ramp": "launch", "host": "host", "read": "dram", "read_ceiling": "dram",
        "write": "dram", "write_ceiling": "dram", "passes": "dram", "alignment": "dram", "rows": "rows",
        "vector": "rows", "tensor": "tensor", "tensor_ceiling": "tensor",
    },
    groups=_groups,
    rows=_rows,
    row=_row,
    phases=("forward", "backward"),
    grids=_GRIDS,
    kind=lambda attributes: str(attributes.get("function", "")),  # kernels of functions differ in what they compute
    transfer=_transferred,
    widening=_widening,
    extrapolation=_extrapolation,
    extrapolation_note=(
        "delta rules: by a form of their own, which no coefficient was fitted to; the interval is what half of the "
        "shapes of AIConfigurator and aiter show"
    ),
    is_fallback=True,
)  # fmt: skip
