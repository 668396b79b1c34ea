"""Grouped products, single or as the experts of a mixture: tiles of unequal groups, weights of used experts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.calibration.related_devices import runs_kernels_of
from nearpeak.prediction.grouped_gemm.grouped_shapes import (  # fmt: skip
    UNSTATED,
    device_figures,
    exponent_of,
    open_loads,
    touched_of,
    with_touched,
)
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, coefficient_ranges
from nearpeak.prediction.power.board_power import repower
from nearpeak.prediction.product_units import unit_of

COEFFICIENTS = coefficient_ranges(
    # name, least, largest, usual, meaning, measurements that identify it
    ("launch_s", 0.5e-6, 100e-6, 5e-6, "start and end of the kernels", "one token, small experts"),
    ("tensor_ratio", 0.15, 1.15, 0.7, "reached share of the product rate", "thousands of rows per expert"),
    ("dram_ratio", 0.3, 1.0, 0.8, "reached share of the memory rate", "few rows for each of many experts"),
    ("l2_bytes_per_clock", 6, 300, 64, "cache bandwidth per multiprocessor", "small tiles, short depths"),
    ("tile_start_s", 0.0, 10e-6, 1e-6, "filling and draining one tile", "many experts with small matrices"),
    ("step_s", 0.0, 600e-9, 100e-9, "latency of one step along k, 128 bytes deep", "one token"),
    ("saturation_ratio", 0.02, 1.0, 0.3,
     "share of the multiprocessors that saturates memory", "one or two experts with a few rows"),
    ("residency_ratio", 0.05, 3.0, 0.5,
     "share of the cache that stays resident", "weights around the size of the cache"),
    ("hidden_tail_ratio", 0.0, 0.97, 0.5,
     "share of the last partial wave that is hidden", "tiles just above whole waves"),
    ("routing_s", 0.0, 100e-6, 10e-6,
     "choosing experts, sorting and gathering tokens in a layer", "one token, small experts"),
    ("group_s", 0.0, 0.5e-6, 10e-9, "scheduling one group", "few tokens, hundreds of experts"),
    ("token_s", 0.0, 40e-9, 0.5e-9, "routing one token", "thousands of tokens, small experts"),
    ("pass_count", 0.0, 8.0, 1.0,
     "times that gathering, activation and scattering move the rows of a layer",
     "thousands of tokens, small experts"),
    ("clock_ratio", 0.0, 3.0, 0.1, "loss of clock under sustained products", "one layer from 50 us to 20 ms"),
    ("foreign_ratio", 0.0, 1.0, 0.0,
     "share of the rows of arriving tokens that kernels multiply although other devices hold their experts",
     "one layer with its experts on 1, 2, 8 and 32 devices, thousands of tokens"),
    ("foreign_pass_ratio", 0.0, 2.0, 0.0,
     "share of all tokens' rows on other devices that gathering, activation and scattering move nevertheless",
     "small experts on 32 devices, thousands of tokens"),
)  # fmt: skip
"""The coefficients of the model: ranges, meaning, what pins each down; the kernel reads them in this order."""

TERMS = (
    "launch", "routing", "passes", "tensor", "tile_padding", "tensor_ceiling", "wave_tail", "tile_start", "l2", "dram",
    "dram_ceiling", "few_tiles", "latency", "clock", "foreign",
)  # fmt: skip
"""Parts of a predicted time, in the order of the columns that the kernel writes."""
_ALIKE = {
    "fp16": "bf16", "fp8_row": "fp8_tensor", "fp8_block_1x128": "fp8_block", "mxfp8": "fp8_block", "mxfp4": "nvfp4",
    "int4_weight_only_32": "int4_weight_only", "int4_weight_only_64": "int4_weight_only",
}  # fmt: skip
"""Substitute format for coefficients where a format has none."""
_WIDE = ("fp32", "fp64", "tf32")
_LAST = ("fp8_tensor", "bf16")


def _lacks(dtypes: Mapping[str, str], attributes: Mapping[str, str | bool]) -> str:
    """Return the unmeasured feature: a wide format, or sums over the rows of a group."""
    if dtypes["dtype"] in _WIDE:
        return dtypes["dtype"]
    return "" if attributes.get("split", "m") == "m" else "split=k"


def _groups(_op: str, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the formats whose coefficients may serve, best first."""
    dtype = dtypes["dtype"]
    if dtype in _WIDE:
        raise NotModelledError(f"predict: no model for grouped_gemm in {dtype}; formats of 16 bits and less only")
    return tuple(dict.fromkeys((dtype, _ALIKE.get(dtype, dtype), *_LAST)))


def _rows(target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the times of products [m,k] x [groups,k,n], the rows spread over the touched groups."""
    from nearpeak.prediction.grouped_gemm import grouped_gemm_kernel as kernel

    if cases.attributes.get("split", "m") != "m":
        raise NotModelledError("predict: no model for grouped_gemm with split=k; split=m can be predicted")
    names = ("m", "n", "k", "groups")
    extents = [np.atleast_1d(np.asarray(cases.axes[name], dtype=np.float64)) for name in names]
    touched = touched_of(cases, extents[0], extents[3], stated=bool(setting.load_exponent_ratio))
    tokens = np.where(np.asarray(setting.layer_tokens_count) > 0, setting.layer_tokens_count, extents[0])
    everywhere = np.maximum(np.asarray(setting.layer_rows_count, dtype=np.float64), extents[0])
    columns = np.stack(np.broadcast_arrays(*extents, touched, tokens, everywhere), 1)
    parts, times = np.empty((len(columns), len(TERMS))), np.empty(len(columns))
    exponent = setting.load_exponent_ratio or exponent_of(str(cases.attributes.get("load", "")))
    kernel.fill(
        columns, float(setting.expert_matrices_count), exponent,
        device_figures(target, cases.dtypes["dtype"], unpacked=setting.unpacks_weights),
        np.asarray(coefficients, dtype=float), parts, times,
    )  # fmt: skip
    return Rows(time_s=times, parts_s=parts)


def _corrected_by(_target: Target, cases: CaseColumns, setting: Setting) -> Mapping[str, Any]:
    rows, groups = (np.maximum(np.asarray(cases.axes.get(name, 1)), 1) for name in ("m", "touched_groups"))
    return {
        **cases.axes, "group_rows": rows / groups, "spread": np.maximum(setting.layer_rows_count, rows) / rows,
        "load_exponent": setting.load_exponent_ratio or exponent_of(str(cases.attributes.get("load", ""))),
        "layer_tokens": setting.layer_tokens_count, "layer_rows": setting.layer_rows_count,
        "expert_matrices": float(setting.expert_matrices_count), "unpacked": float(setting.unpacks_weights),
    }  # fmt: skip


def _transferred(
    target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]], *, is_related: bool
) -> list[Any]:
    """Return coefficients with the board power of `target`, where devices run its kernels; of others as they are."""
    values = [np.array(vector, dtype=float) for _, vector in measured]
    for (device, _), vector in zip(measured, values, strict=True):
        if is_related:
            repower(vector, COEFFICIENTS, target, device, lambda board: unit_of(board, dtypes), dtypes["dtype"])
    return values


KERNEL_MODEL = KernelModel(
    name="grouped_gemm",
    ops=("grouped_gemm",),
    version="grouped-gemm-2",
    coefficients=COEFFICIENTS,
    terms=TERMS,
    regimes={
        **dict.fromkeys(("launch", "routing", "passes", "latency"), "launch"),
        **dict.fromkeys(("dram", "dram_ceiling", "few_tiles", "l2"), "dram"),
        **dict.fromkeys(
            ("tensor", "tile_padding", "tensor_ceiling", "wave_tail", "tile_start", "clock", "foreign"), "tensor"
        ),
    },
    groups=_groups,
    is_by_format=True,
    grids={
        "grouped_gemm": {
            "m": (64, 512, 4096, 16384),
            "n": (512, 2048, 7168),
            "k": (512, 2048, 7168),
            "groups": (64,),
            "touched_groups": (8, 64),
        },
    },
    rows=_rows,
    lacks=_lacks,
    correction_columns=_corrected_by,
    completed=with_touched,
    open_values=open_loads,
    open_note=UNSTATED,
    related=runs_kernels_of,
    transfer=_transferred,
)
