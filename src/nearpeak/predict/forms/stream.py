"""Whatever streams through memory: element-wise, norms, reductions, movement, optimizers; coarsely, all the rest."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS
from nearpeak.predict._form import CaseColumns, Form, Rows, Setting
from nearpeak.predict._stream_scalars import SCALARS
from nearpeak.predict._work_columns import WorkColumns, work_columns
from nearpeak.theory.rates import vector_rate

TERMS = (
    "launch", "grid_ramp", "read", "read_ceiling", "write", "write_ceiling", "passes", "alignment", "rows", "vector",
    "tensor", "tensor_ceiling", "host",
)  # fmt: skip
"""Parts of a predicted time."""
_OWN = ("softmax", "rms_norm", "quantise", "rotary_embedding", "embedding")
"""Operators with measurements of their own."""
_MEASURED = (*_OWN, "elementwise", "layer_norm", "gemm")
_UNSEEN_WIDENING, _COARSE_WIDENING = 2.5, 12.0
"""Powers by which intervals widen for operators without measurements: those of the same kind, and all others."""
_KINDS = {
    "norm": ("norm", "softmax"), "pointwise": (), "movement": (), "optimizer": (), "reduction": ("norm",),
    "product": ("product",), "convolution": ("product",), "attention": ("product",),
}  # fmt: skip
"""Groups of coefficients by family of operators, before those of element-wise functions."""
_ALIKE = {"embedding_bag": "embedding", "gather": "embedding", "dequantise": "quantise", "cross_entropy": "softmax"}
_SPECIAL_WEIGHT = {"pow": 4.0, "div": 0.5}
"""Vector instructions of a special function against those of an exponential: pow is a logarithm of extra precision, a
product and an exponential; a division is a reciprocal and its correction."""
_ONE_WARP = ("softmax", "cross_entropy", "nll_loss")
_REGISTER_ROW_BYTES = 4096
"""Longest row that one warp of a softmax keeps in registers: 1024 columns of fp32 in PyTorch (SoftMax.cu)."""
_GATED = ("swiglu", "glu")
_BLOCK_BYTES = 8192
"""Bytes that one block of threads of an element-wise kernel moves."""
_BLOCKS_PER_SM = 8
"""Rows that one multiprocessor works on at a time: 2048 threads in blocks of 256."""
_ALIGNED_BYTES = 16
"""Widest load of one thread."""
_SHARPNESS = 4.0
"""Power at which rows and arithmetic overlap with memory."""
_HOST_SHARPNESS = 12.0
"""Power at which the host's floor gives way to the kernel: measured corners are sharp."""


def _groups(op: str, _dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the groups of coefficients that may serve, best first."""
    own = op if op in _OWN else _ALIKE.get(op)
    return tuple(dict.fromkeys((*((own,) if own else ()), *_KINDS[OPS[op].family], "pointwise")))


def _rows(target: Target, cases: CaseColumns, scalars: Any, setting: Setting) -> Rows:
    """Return the times of cases from their least work.

    Source: derived; bytes at the reached share of the pin rate, rows of norms as blocks that read again what the cache
    does not keep, special functions as vector instructions, roofline of products.
    """
    if target.kind != "gpu" or target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: no prediction of {cases.op}; GPUs that state a memory bandwidth only")
    work = work_columns(target, cases)
    scalar = dict(zip((one.name for one in SCALARS), scalars, strict=True))
    parts = _parts(target, cases, work, scalar)
    kernel_s = sum(parts.values())
    if setting.host_timed:
        floor = scalar["host_floor_s"] * np.maximum(work.launch_count, 1)
        seen_s = ((scalar["host_gap_s"] + kernel_s) ** _HOST_SHARPNESS + floor**_HOST_SHARPNESS) ** (
            1 / _HOST_SHARPNESS
        )
        parts["host"] = seen_s - kernel_s
    columns = np.stack([parts.get(name, np.zeros_like(kernel_s)) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _parts(
    target: Target, cases: CaseColumns, work: WorkColumns, scalar: Mapping[str, float]
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of the time of the kernels themselves."""
    bandwidth = target.dram.bandwidth_bytes_per_s or 0.0
    moved = work.read_bytes + work.write_bytes
    read_s, write_s = work.read_bytes / bandwidth, work.write_bytes / bandwidth
    parts = {
        "launch": scalar["launch_s"] * np.maximum(work.launch_count, 1),
        "grid_ramp": scalar["grid_ramp_s"] * np.minimum(1.0, moved / (_BLOCK_BYTES * target.sm_count)),
        "read": read_s,
        "read_ceiling": read_s * (1 / scalar["read_ratio"] - 1),
        **_written(target, write_s, work.write_bytes, scalar),
    }
    parts["passes"] = _again_s(target, cases, work, scalar)
    memory_s = sum(parts[name] for name in ("read", "read_ceiling", "write", "write_ceiling", "passes"))
    unaligned = (work.group_bytes % _ALIGNED_BYTES != 0) & (work.group_count > 0)
    rate = np.where(unaligned, scalar["unaligned_ratio"], 1.0)
    rate = rate * (scalar["gated_ratio"] if cases.attributes.get("function") in _GATED else 1.0)
    parts["alignment"] = memory_s * (1 / rate - 1)
    memory_s = memory_s + parts["alignment"]
    others = {
        "rows": _rows_s(target, cases, work, scalar), "vector": _vector_s(target, cases, work, scalar),
        "tensor": work.matrix_s / scalar["tensor_ratio"],
    }  # fmt: skip
    parts |= _exposed(memory_s, others)
    parts["tensor_ceiling"] = parts["tensor"] * (1 - scalar["tensor_ratio"])
    parts["tensor"] = parts["tensor"] * scalar["tensor_ratio"]
    return parts


def _written(target: Target, write_s: Any, write_bytes: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    """Return the time of writing: what the cache takes in is written back later, behind other kernels."""
    kept = scalar["write_residency_ratio"] * (target.l2.capacity_bytes or 0)
    share = np.maximum(write_bytes - kept, 0.0) / np.maximum(write_bytes, 1.0)
    return {"write": write_s * share, "write_ceiling": write_s * share * (1 / scalar["write_ratio"] - 1)}


def _again_s(target: Target, cases: CaseColumns, work: WorkColumns, scalar: Mapping[str, float]) -> Any:
    """Return the time of reading rows again that the cache lost between two passes over them."""
    held = np.minimum(work.group_count, target.sm_count * _BLOCKS_PER_SM) * work.group_bytes
    kept = scalar["row_residency_ratio"] * (target.l2.capacity_bytes or 0)
    lost = np.clip(held / max(kept, 1.0) - 0.5, 0.0, 1.0)
    lost = np.where(_leaves_registers(cases.op, work.group_bytes), lost, 0.0)
    again = scalar["row_passes_count"] * lost * work.group_count * work.group_bytes
    return again / (scalar["read_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0))


def _rows_s(target: Target, cases: CaseColumns, work: WorkColumns, scalar: Mapping[str, float]) -> Any:
    """Return the time of rows on their multiprocessors: fewer rows than multiprocessors leave some idle."""
    each_s = scalar["row_s"] + work.group_bytes / (scalar["row_bytes_per_clock"] * target.clock_hz)
    rows_s = np.maximum(work.group_count / target.sm_count, 1.0) * each_s
    return np.where(_leaves_registers(cases.op, work.group_bytes), rows_s, 0.0)


def _leaves_registers(op: str, row_bytes: Any) -> Any:
    """Return which rows a block of threads works on instead of one warp that holds a whole row."""
    return row_bytes > (_REGISTER_ROW_BYTES if op in _ONE_WARP else 0)


def _vector_s(target: Target, cases: CaseColumns, work: WorkColumns, scalar: Mapping[str, float]) -> Any:
    weight = _SPECIAL_WEIGHT.get(str(cases.attributes.get("function", "")), 1.0)
    flop = work.vector_flop + weight * scalar["special_flop_count"] * work.special_count
    return flop / (scalar["vector_ratio"] * vector_rate(target, "fp32")[1])


def _exposed(memory_s: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return by how much each of `others` prolongs the time of memory under overlap, in sum exactly the excess."""
    powers = {name: time_s**_SHARPNESS for name, time_s in others.items()}
    excess = (memory_s**_SHARPNESS + sum(powers.values())) ** (1 / _SHARPNESS) - memory_s
    whole = np.maximum(sum(powers.values()), np.finfo(np.float64).tiny)
    return {name: excess * power / whole for name, power in powers.items()}


def _kind(attributes: Mapping[str, str | bool]) -> str:
    """Return the function: kernels of functions share what they read and write, not what they compute."""
    return str(attributes.get("function", ""))


def _widening(op: str) -> float:
    """Return how much less is known of an operator than of those measured: assumptions, as no tables have them."""
    if op in _MEASURED:
        return 1.0
    return _COARSE_WIDENING if _KINDS[OPS[op].family][:1] == ("product",) else _UNSEEN_WIDENING


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

FORM = Form(
    name="stream",
    ops=OPS.names(),
    version="stream-1",
    scalars=SCALARS,
    terms=TERMS,
    regimes={
        "launch": "launch", "grid_ramp": "launch", "host": "host", "read": "dram", "read_ceiling": "dram",
        "write": "dram", "write_ceiling": "dram", "passes": "dram", "alignment": "dram", "rows": "rows",
        "vector": "rows", "tensor": "tensor", "tensor_ceiling": "tensor",
    },
    groups=_groups,
    rows=_rows,
    phases=("forward", "backward"),
    grids=_GRIDS,
    kind=_kind,
    widening=_widening,
    is_fallback=True,
)  # fmt: skip
