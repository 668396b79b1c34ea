"""Convolutions: the fastest solver of each pass."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.family import EAGER, OLD, Block, Family, best_rows, kinds_of, lacks, site_numbers, target_name
from benchmarks.accuracy.names import DEVICES
from nearpeak.prediction.calibration.fit import relative
from nearpeak.prediction.conv.conv_coefficients import CLASSES, COEFFICIENTS
from nearpeak.prediction.conv.conv_coefficients import PASSES as PASSES_OF_FORM
from nearpeak.prediction.conv.conv_shapes import shape_of
from nearpeak.prediction.conv.pass_costs import class_of
from nearpeak.prediction.kernel_model import Setting

FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
PASSES: dict[str, tuple[str, dict[str, str | bool]]] = {
    "conv": ("forward", {}), "conv_fwd": ("forward", {}),
    "conv_bwd_data": ("backward", {"grad_weight": False}), "conv_bwd_weight": ("backward", {"grad_input": False}),
}  # fmt: skip
"""Phase and choices by the corpus' name of a pass."""
PLAIN = {
    "batch": "batch", "in_channels": "cin", "out_channels": "cout", "h": "hin", "w": "win", "kh": "kh", "kw": "kw",
    "sh": "sh", "sw": "sw", "ph": "ph", "pw": "pw",
}  # fmt: skip
SQUARE = {
    "batch": "batch", "in_channels": "cin", "out_channels": "cout", "h": "hin", "w": "hin", "kh": "ksize",
    "kw": "ksize", "sh": "stride", "sw": "stride", "ph": "pad", "pw": "pad",
}  # fmt: skip
MIOPEN = PLAIN | {"dh": "dh", "dw": "dw", "groups": "groups"}
SWAPPED = {"in_channels": "cout", "out_channels": "cin", "h": "hout", "w": "wout"}
"""MIOpen's keys name what a backward pass reads `in`: the gradient of the output. Strided rows add up only so."""
FILES: dict[str, dict[str, str]] = {"miopen_conv": MIOPEN, "deepbench_conv": PLAIN, "neusight_conv": SQUARE}
HOST_TIMED = ("neusight",)
ALONE = ("miopen",)
"""MIOpen's search runs solver after solver once or twice, with compilation between; others repeat a kernel."""
LEAST_ROWS = 60
"""DeepBench has 69 to 78 convolutions per pass; those of the MI25 are held out whole."""


def _blocks(folder: Path) -> Iterator[Block]:
    for file, axes in FILES.items():
        path = folder / f"{file}.parquet"
        names = ("source", "device", "op", "dtype")
        for name in kinds_of(path, *names, known=lambda *kind: kind[2] in PASSES and kind[3] in FORMATS):
            yield _block(path, name, axes)


def _block(path: Path, name: tuple[str, ...], axes: dict[str, str]) -> Block:
    source, device, op, dtype = name
    if source == "miopen" and op != "conv_fwd":
        axes = axes | SWAPPED
    dropped = OLD if source in HOST_TIMED else OLD | EAGER
    where = f"source = ? and device = ? and op = ? and dtype = ? and {lacks(dropped)}"
    found = best_rows(path, [f"{value} as x_{axis}" for axis, value in axes.items()], where, name)
    columns: dict[str, Any] = {axis: found[f"x_{axis}"].astype(np.int64) for axis in axes}
    phase, attributes = PASSES[op]
    return Block(
        source=source, device=target_name(device), kind=f"{op} {dtype}", op="conv", phase=phase,
        dtypes={"dtype": FORMATS[dtype]}, axes=columns, attributes=attributes, measured_s=found["best"],
        left_out=found["left_out"],
        sites=site_numbers(*(columns[axis] for axis in ("in_channels", "out_channels", "h", "w", "kh", "batch"))),
        setting=Setting(host_timed=source in HOST_TIMED, is_alone=source in ALONE),
    )  # fmt: skip


def miopen_kernels(corpus: Path, block: Block) -> tuple[Any, Any]:
    """Return the fastest solver of each row of one of MIOpen's blocks, and whether it alone was recorded."""
    import duckdb

    axes = MIOPEN if block.phase == "forward" else MIOPEN | SWAPPED
    columns = ", ".join(axes.values())
    query = (
        f"select {columns}, arg_min(kernel, latency_us) as kernel, arg_min(n_solvers, latency_us) = 1 as is_alone "
        f"from read_parquet(?) where device = ? and op = ? and dtype = ? and {lacks(OLD | EAGER)} "
        f"group by {columns}"
    )
    op, dtype = block.kind.split()
    device = next((name for name, target in DEVICES.items() if target == block.device), f"amd_{block.device}")
    path = str(corpus / "miopen_conv.parquet")
    found = duckdb.execute(query, [path, device, op, dtype]).fetchall()
    by_shape = {tuple(row[: len(axes)]): row[len(axes) :] for row in found}
    shapes = zip(*(column.tolist() for column in block.axes.values()), strict=True)
    kernels, alone = zip(*(by_shape[shape] for shape in shapes), strict=True)
    return np.array(kernels), np.array(alone)


def _fixed(block: Block) -> tuple[str, ...]:
    """Return the scalars that a block says nothing about."""
    fixed = {"launch_s"} if block.setting.host_timed else {"host_floor_s", "host_gap_s"}
    fixed |= set() if block.setting.is_alone else {"slow_clock_ratio", "clock_rise_s"}
    used = {"conv_bwd_data": "dgrad", "conv_bwd_weight": "wgrad"}.get(block.kind.split()[0], "fprop")
    found = np.unique(class_of(shape_of(block.axes)))
    fixed |= {f"{used}_{kind}_ratio" for place, kind in enumerate(CLASSES) if place not in found}
    others = {s.name for s in COEFFICIENTS if s.name.split("_")[0] in PASSES_OF_FORM and s.name.split("_")[0] != used}
    return tuple(sorted(fixed | others))


FAMILY = Family(
    name="conv",
    blocks=_blocks,
    files=tuple(FILES),
    allowed=(
        "miopen", "neusight", "deepbench gtx_1080_ti", "deepbench m40", "deepbench p100_pcie", "deepbench titan_x",
        "deepbench v100_sxm",
    ),
    fixed=_fixed,
    sample_count=2000,
    is_held=True,
    left_out_share=0.2,
    deviation=relative,
    least_rows_count=LEAST_ROWS,
)  # fmt: skip
