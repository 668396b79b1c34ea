"""Matrix products: tiles, waves, split-K, cache and memory traffic, stores, launch and clock."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.related_devices import runs_products_of
from nearpeak.prediction.calibration.source_spread import gradient_spread
from nearpeak.prediction.gemm.gemm_coefficients import COEFFICIENTS
from nearpeak.prediction.gemm.gemm_transfer import reformatted, transferred
from nearpeak.prediction.gemm.product_formats import device_figures, tile_sets, tiles_of
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, extents, sequential
from nearpeak.prediction.product_units import formats_of, unit_of

TERMS = (
    "launch", "grid_ramp", "tensor", "tensor_ceiling", "tile_padding", "wave_tail", "tile_start", "l2", "dram",
    "dram_ceiling", "few_tiles", "latency", "store", "split_k", "clock", "quantise", "padding", "host",
)  # fmt: skip
"""Parts of a predicted time, in the order of the columns that the kernel writes."""
_REGIMES = {
    "launch": (
        "launch", "grid_ramp", "tile_start", "latency", "split_k", "quantise", "padding", "host",
    ),
    "l2": ("l2",),
    "dram": ("dram", "dram_ceiling", "few_tiles", "store"),
    "tensor": ("tensor", "tensor_ceiling", "tile_padding", "wave_tail", "clock"),
}  # fmt: skip
"""Largest parts by the regime of the interval."""
_ALIKE = {
    "fp16": "bf16", "fp8_e4m3": "fp8_tensor", "fp8_e5m2": "fp8_tensor", "fp8_e4m3fnuz": "fp8_tensor",
    "fp8_e5m2fnuz": "fp8_tensor", "fp8_row": "fp8_tensor", "fp8_block_1x128": "fp8_block", "mxfp8": "fp8_block",
    "mxfp4": "nvfp4", "fp4_e2m1": "nvfp4", "int8": "fp8_tensor", "int8_tensor": "fp8_tensor", "int8_row": "fp8_tensor",
    "fp64": "fp32",
}  # fmt: skip
"""Substitute format for coefficients where a format has none; with weight-only quantisation, that of A."""
_LAST = ("fp8_tensor", "bf16", "fp8_block", "fp32")


_LAUNCH = [coefficient.name for coefficient in COEFFICIENTS].index("launch_s")


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats whose coefficients may serve, best first."""
    dtype = dtypes["dtype"]
    scheme = DTYPES[dtype].scheme
    activations = scheme.a.dtype if scheme is not None and not scheme.a.scaled else dtype
    start = (dtype, _ALIKE.get(activations, activations))
    later = ("fp32",) if dtype in ("fp32", "fp64") else _LAST
    return tuple(dict.fromkeys((*start, *later)))


def _tells_of(device: Target, target: Target, dtypes: Mapping[str, str]) -> bool:
    """Return whether kernels measured on `device` may run on `target`.

    TensorRT-LLM's kernel for scales of blocks on Ada, the only one in the tables there, is written for Ada alone: its
    0.3 of the rate tells of no other architecture (docs/lab/products_unseen.md).
    """
    return "fp8_block" not in _groups("", dtypes)[:2] or device.architecture != "ada" or target.architecture == "ada"


def _lacks(_dtypes: Mapping[str, str], attributes: Mapping[str, str | bool]) -> str:
    """Return the unmeasured kind of gradient: of the bias alone, or with quantised weights."""
    if "grad_a" not in attributes:
        return ""
    scheme = DTYPES[_dtypes["dtype"]].scheme
    if scheme is not None and not scheme.a.scaled:
        return "gradients beside quantised weights"
    return "" if attributes["grad_a"] or attributes["grad_b"] else "the bias alone"


def _kernels(cases: CaseColumns) -> tuple[CaseColumns, ...]:
    """Return the gradients as products: of A, dY[m,n] times B transposed; of B, A transposed times dY."""
    if cases.phase == "forward":
        return (cases,)
    m, n, k = (cases.axes[name] for name in ("m", "n", "k"))
    gradients = {"grad_a": {"m": m, "n": k, "k": n}, "grad_b": {"m": k, "n": n, "k": m}}
    return tuple(
        replace(cases, phase="forward", axes={**cases.axes, **axes})
        for name, axes in gradients.items()
        if cases.attributes.get(name, True)
    )


def _rows(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the times of products, or of the gradients of one, one product after the other."""
    return sequential([_products(target, product, coefficients, how) for product, how in _each(cases, setting)])


def _row(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the time of one product, or of the gradients of one."""
    return sequential([_product(target, product, coefficients, how) for product, how in _each(cases, setting)])


def _each(cases: CaseColumns, setting: Setting) -> Iterable[tuple[CaseColumns, Setting]]:
    """Return the products of cases, with how each runs.

    The gradient of the result arrives as wide as the result: a kernel quantises it for both products.
    """
    if cases.phase == "forward":
        return [(cases, setting)]
    a, _, out = formats_of(cases.dtypes)
    first = replace(setting, quantises_input=True) if a.bits_count < out.bits_count else setting
    return zip(_kernels(cases), (first, setting), strict=False)


def _products(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the times of products [m,k] x [k,n], `batch` of them.

    Source: tile and wave arithmetic as in NeuSight (ASPLOS'25) and Origami; unique bytes per cache level counted here.
    """
    from nearpeak.prediction.gemm import gemm_kernel as kernel

    columns = extents(cases, ("m", "n", "k", "batch"))
    is_empty = columns[0] * columns[1] * columns[3] == 0
    some_empty = is_empty.any()
    m, n, k, batch = (np.where(is_empty, 1.0, column) for column in columns) if some_empty else columns
    parts, times = np.empty((len(TERMS), len(m))), np.empty(len(m))
    device = device_figures(target, cases.dtypes, setting)
    for chosen, (tile_m, tile_n) in tile_sets(target, cases.dtypes["dtype"], batch):
        part, total = parts[:, chosen], times[chosen]
        kernel.fill(
            m[chosen],
            n[chosen],
            k[chosen],
            batch[chosen],
            device,
            coefficients,
            tile_m,
            tile_n,
            kernel.SPLITS,
            part,
            total,
        )
        if not isinstance(chosen, slice):
            parts[:, chosen], times[chosen] = part, total
    if some_empty:  # a grid without blocks is a launch at most
        launch_s = coefficients[_LAUNCH]
        parts[:, is_empty], parts[TERMS.index("launch"), is_empty], times[is_empty] = 0.0, launch_s, launch_s
    return Rows(time_s=times, parts_s=parts.T)


def _product(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the time of one product, in one call of the compiled kernel."""
    from nearpeak.prediction.gemm import gemm_kernel as kernel

    m, n, k, batch = (cases.axes.get(name, 1) for name in ("m", "n", "k", "batch"))
    device = device_figures(target, cases.dtypes, setting)
    if m * n * batch == 0:  # a grid without blocks is a launch at most
        launch_s = float(coefficients[_LAUNCH])
        return Rows(time_s=launch_s, parts_s=[launch_s if term == "launch" else 0.0 for term in TERMS])
    tiles = tiles_of(target, cases.dtypes["dtype"], is_batched=bool(batch > 1))
    *parts_s, time_s = kernel.case_fill(device, coefficients, tiles)(m, n, k, batch)
    return Rows(time_s=time_s, parts_s=parts_s)


def _corrected_by(_target: Target, cases: CaseColumns, setting: Setting) -> Mapping[str, Any]:
    extents = {name: cases.axes.get(name, 1) for name in ("m", "n", "k", "batch")}
    return extents | {"quantises_input": float(setting.quantises_input)}


KERNEL_MODEL = KernelModel(
    name="gemm",
    ops=("gemm", "scaled_gemm"),
    version="gemm-4",
    coefficients=COEFFICIENTS,
    terms=TERMS,
    regimes={term: regime for regime, terms in _REGIMES.items() for term in terms},
    groups=_groups,
    is_by_format=True,
    rows=_rows,
    row=_row,
    grid={
        "m": (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "n": (128, 512, 1536, 4096, 7168, 16384), "k": (128, 512, 1536, 4096, 7168, 16384),
    },
    size=lambda target, dtypes: math.log2(target.peaks[unit_of(target, dtypes)].flop_per_clock),
    related=runs_products_of,
    informs=_tells_of,
    reformatted=reformatted,
    transfer=transferred,
    correction_columns=_corrected_by,
    kernels=_kernels,
    lacks=_lacks,
    phases=("forward", "backward"),
    extrapolation=lambda _target, cases: gradient_spread(cases),
    extrapolation_note=(
        "gradients: two products, of each factor's; such as are not transposed were measured, so that the interval is "
        "that of other software"
    ),
)  # fmt: skip
