"""Products of matrices: newest software, clean rows, the best implementation per shape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families._calls import Kernels, cast, function, reduced
from benchmarks.accuracy.family import (
    EAGER,
    HOT,
    OLD,
    Block,
    Family,
    best_rows,
    has_column,
    kinds_of,
    lacks,
    reasons,
    site_numbers,
    sole_software,
    target_name,
)  # fmt: skip
from nearpeak.prediction.gemm.product_formats import runs_small_whole
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.models.gemm import COEFFICIENTS
from nearpeak.targets import target_of

FILES = ("aic_gemm", "aiter_gemm", "neusight_gemm", "infersim_gemm", "deepbench_gemm", "simumax_gemm")
HOST_TIMED = ("neusight",)
"""Sources whose every row includes the host's launch, which then is part of what is predicted."""
READY_SOURCES = ("aiter", "infersim")
"""Sources that time the product alone, with A quantised beforehand."""
SUSTAINED_SOURCES = ("neusight", "simumax")
"""Sources of work that goes on: a kernel 25 times in a row after warming up, and products of training runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """How a corpus format of a product reads as a case."""

    op: str
    """Operator."""
    dtype: str
    """Format of the case."""
    quantises_input: bool = False
    """Whether the measured time includes quantising A from bf16."""


PRODUCTS = {
    "bfloat16": Product(op="gemm", dtype="bf16"),
    "float16": Product(op="gemm", dtype="fp16"),
    "float32": Product(op="gemm", dtype="fp32"),
    "fp8": Product(op="scaled_gemm", dtype="fp8_tensor", quantises_input=True),
    "fp8_block": Product(op="scaled_gemm", dtype="fp8_block", quantises_input=True),
    "nvfp4": Product(op="scaled_gemm", dtype="nvfp4", quantises_input=True),
    "mxfp4": Product(op="scaled_gemm", dtype="mxfp4", quantises_input=True),
    "int8": Product(op="scaled_gemm", dtype="int8_row"),
    "fp8_static": Product(op="scaled_gemm", dtype="fp8_tensor", quantises_input=True),
    "sq": Product(op="scaled_gemm", dtype="int8_row", quantises_input=True),
    "int8_wo": Product(op="scaled_gemm", dtype="int8_weight_only"),
    "int4_wo": Product(op="scaled_gemm", dtype="int4_weight_only"),
}
"""Products by the corpus' name of a format."""
SCORED = ("fp8_static", "sq", "int8_wo", "int4_wo")
"""Formats that are scored and never fitted: other kernels or scales than those behind the coefficients."""


def _blocks(folder: Path) -> Iterator[Block]:
    for file in FILES:
        path = folder / f"{file}.parquet"
        names = ("source", "device", "dtype")
        for source, device, dtype in kinds_of(path, *names, known=lambda *kind: kind[2] in PRODUCTS):
            yield _block(path, source, device, dtype)


def _block(path: Path, source: str, device: str, dtype: str) -> Block:
    dropped = OLD if source in HOST_TIMED else OLD | EAGER
    batch = "coalesce(batch, 1) as batch" if has_column(path, "batch") else "1 as batch"
    where = f"device = ? and dtype = ? and source = ? and {lacks(dropped)}"
    found = best_rows(path, (batch, "m", "n", "k"), where, (device, dtype, source), positive="mnk")
    hot, product = (found["flags"] & HOT) > 0, PRODUCTS[dtype]
    names = ("m", "n", "k", "batch") if product.op == "gemm" else ("m", "n", "k")
    axes = {name: found[name][~hot].astype(np.int64) for name in names}
    software = sole_software(path, where, (device, dtype, source)) if dtype in SCORED else ""
    block = Block(
        source=source, device=target_name(device), kind=dtype, op=product.op, dtypes={"dtype": product.dtype},
        axes=axes, measured_s=found["best"][~hot], left_out=reasons(found, hot),
        sites=site_numbers(axes["n"], axes["k"]),
        setting=Setting(
            quantises_input=product.quantises_input and source not in READY_SOURCES, host_timed=source in HOST_TIMED,
            is_sustained=source in SUSTAINED_SOURCES or None,
            software=software, software_or_best=True,
        ),
    )  # fmt: skip
    if (dtype, software) != ("int8_wo", "sglang"):
        return block
    return replace(block, setting=Setting(is_eager=True)).of_kernels(_quantised_by_pytorch(axes))


def _quantised_by_pytorch(axes: Mapping[str, Any]) -> Kernels:
    """Return the kernels that AIConfigurator's collector times as SGLang's products with weights of 8 bits.

    It quantises tokens in plain PyTorch, then multiplies in int8: nine kernels (`per_token_quant_int8` of
    collector/sglang/collect_gemm.py, ai-dynamo/aiconfigurator).
    """
    rows, whole = axes["m"], axes["m"] * axes["k"]
    return (
        cast("bf16", "fp32", whole), function("abs", whole, dtype="fp32"),
        reduced("max", rows, axes["k"]),
        function("clamp", rows, dtype="fp32"), function("div", rows, dtype="fp32"),
        function("div", whole, rows, dtype="fp32"), function("round", whole, dtype="fp32"),
        function("clamp", whole, dtype="fp32"), cast("fp32", "int8", whole),
        (1, "scaled_gemm", {"dtype": "int8_row"}, axes, {}),
    )  # fmt: skip


def _fixed(block: Block) -> tuple[str, ...]:
    quantise = tuple(coefficient.name for coefficient in COEFFICIENTS if coefficient.name.startswith("quantise_"))
    return (
        *(() if block.setting.quantises_input else quantise),
        *(() if block.setting.quantises_input and block.kind == "nvfp4" else ("pad_s",)),
        *(() if runs_small_whole(target_of(block.device), block.dtypes) else ("serial_s",)),
        *(("launch_s",) if block.setting.host_timed else ("host_s", "far_ratio", "unaligned_ratio")),
    )


FAMILY = Family(
    name="gemm",
    blocks=_blocks,
    files=FILES,
    allowed=(
        "aiconfigurator h100_sxm", "aiconfigurator a100_sxm_80gb", "aiconfigurator b200_sxm", "aiconfigurator l40s",
        "neusight", "aiter",
    ),
    scored=SCORED,
    fixed=_fixed,
    # In int8 kernels in assembly ran on the MI300X, but slower ones of a template library alone on the MI355X.
    alone=("aiter mi355x int8",),
    # Caches of two halves keep little from one kernel to the next.
    starts=({}, {"quantise_residency_ratio": 0.1, "residency_ratio": 0.1}),
    least_rows_count=300,
    tree_count=100,  # they are asked for by the million
)  # fmt: skip
