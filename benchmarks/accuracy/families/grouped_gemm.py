"""Grouped products, and the layers of experts that consist of two of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families._routing import even_load, skewed_load
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
from nearpeak.prediction.kernel_model import Setting

FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8_tensor", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4_weight_only", "int4_wo": "int4_weight_only",
    "a_bfloat16_w_bfloat16_No": "bf16", "a_float8_w_float8_per_1x128": "fp8_block",
}  # fmt: skip
"""Formats by the corpus' name of them; products of 4-bit weights and 8-bit tokens have no format here yet."""
POWER_LAW = "power_law_"
_EVENED = "_eplb"
WIDE = "wide"
"""First word of kinds of layers whose experts lie on many ranks, by kernels of their own: scored, never fitted."""
_UNPACKS = "dtype = 'w4a16_mxfp4' and starts_with(kernel, 'sglang_fused_moe_triton')"
"""Kernels before which the library turns weights of 4 bits into bf16 once, while loading: kernels read bf16.

They take as long as reading 16 bits does, three to four times as long as kernels for 4 bits on the same shapes.
"""
_LAYER = ("tokens", "hidden", "inter", "topk", "experts")
_SHARED = ("tp", "ep")


def _blocks(folder: Path) -> Iterator[Block]:
    yield from _layers(folder / "aic_moe.parquet", _SHARED, "distribution")
    yield from _layers(folder / "aiter_moe.parquet", (), "'uniform'")
    yield from _layers(folder / "aic_wideep_moe.parquet", _SHARED, "distribution", named=WIDE)
    yield from _products(folder / "infersim_grouped_gemm.parquet")


def _layers(path: Path, shared: tuple[str, ...], distribution: str, *, named: str = "moe") -> Iterator[Block]:
    """Yield the layers of one file, a block per format, load and kind of expert."""
    operator = "replace(op, 'wideep_', '')" if named == WIDE else "''"
    gated_column = "true" if named == WIDE else "gated"
    unpacks = _UNPACKS if path.exists() and has_column(path, "kernel") else "false"
    names = ("source", "device", "dtype", distribution, gated_column, f"({unpacks})", operator)
    where = f"{' and '.join(f'{name} = ?' for name in names)} and {lacks(OLD | EAGER)}"
    for kind in kinds_of(path, *names, known=lambda *one: one[2] in FORMATS and _is_stated(*one[3::3])):
        source, device, dtype, load, gated, unpacked, way = kind
        found = best_rows(path, (*_LAYER, *shared), where, kind)
        hot = (found["flags"] & HOT) > 0
        if not len(found["best"]):
            continue
        exponent = float(load.removeprefix(POWER_LAW)) if _is_skewed(load) else 0.0
        name = f"{named}{way and ' '}{way} {dtype} {load}{'' if gated else ' plain'}{' unpacked' if unpacked else ''}"
        yield Block(
            source=source, device=target_name(device), kind=name, op="grouped_gemm",
            dtypes={"dtype": FORMATS[dtype]},
            axes=_axes(found, ~hot, int(gated), "balanced" if named == WIDE and load == "uniform" else load, exponent),
            measured_s=found["best"][~hot], left_out=reasons(found, hot),
            sites=site_numbers(*(found[name][~hot] for name in (*_LAYER, *shared))),
            setting=Setting(
                expert_matrices_count=3 if gated else 2, load_exponent_ratio=exponent, unpacks_weights=unpacked,
                software=sole_software(path, where, kind) if named == WIDE else "", software_or_best=True,
            ),
            settings=_settings(found, ~hot),
        )  # fmt: skip


def _is_stated(load: str, way: str) -> bool:
    """Return whether the load of the timed rank is stated: kernels of SGLang's two stages state it where it is even."""
    return way not in ("context_moe", "generation_moe") or not load.startswith(POWER_LAW)


def _is_skewed(load: str) -> bool:
    """Return whether experts have unequal loads; copies of the fullest experts (`eplb`) make those of ranks equal."""
    return load.startswith(POWER_LAW) and not load.endswith(_EVENED)


def _settings(found: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Return tokens of each whole layer, and their rows on all devices together."""
    tokens, top_k = (found[name][rows].astype(np.int64) for name in ("tokens", "topk"))
    return {"layer_tokens_count": tokens, "layer_rows_count": tokens * top_k}


def _axes(found: dict[str, Any], rows: Any, gated: int, load: str, exponent: float) -> dict[str, Any]:
    """Return the matrices of the experts of one rank side by side as one grouped product."""
    one = np.ones(rows.sum(), dtype=np.int64)
    tokens, hidden, inner, top_k, experts = (found[name][rows].astype(np.int64) for name in _LAYER)
    slices, ranks = (found[name][rows].astype(np.int64) if name in found else one for name in _SHARED)
    spread = _spread(load, exponent)
    loads = [spread(*(int(x) for x in row)) for row in zip(tokens, top_k, experts, ranks, strict=True)]
    m, touched = np.array(loads, dtype=np.int64).reshape(-1, 2).T
    n = (2 + gated) * np.maximum(inner // slices, 1)
    return {"m": m, "n": n, "k": hidden, "groups": np.maximum(experts // ranks, 1), "touched_groups": touched}


def _spread(load: str, exponent: float) -> Callable[[int, int, int, int], tuple[int, int]]:
    """Return rows and touched experts of the timed rank by tokens, experts per token, experts and ranks."""
    if load == "balanced" or load.endswith(_EVENED):
        return even_load
    if load == "uniform":
        return lambda tokens, top_k, experts, _: (
            tokens * top_k, max(round(experts * (1 - (1 - top_k / experts) ** tokens)), 1)
        )  # fmt: skip
    return lambda *shape: skewed_load(*shape, exponent)


def _products(path: Path) -> Iterator[Block]:
    """Yield the grouped products that InferSim times, the rows spread evenly over the experts of one device."""
    for source, device, op in kinds_of(path, "source", "device", "op"):
        axes = ("tokens_per_expert", "local_experts", "hidden", "inter")
        found = best_rows(path, axes, "source = ? and device = ? and op = ?", (source, device, op))
        hot = (found["flags"] & HOT) > 0
        each, groups, hidden, inner = (found[name][~hot].astype(np.int64) for name in axes)
        n, k = (2 * inner, hidden) if op.endswith("up") else (hidden, inner)
        m = np.maximum(each * groups, 1)
        yield Block(
            source=source, device=target_name(device), kind=op, op="grouped_gemm", dtypes={"dtype": "fp8_block"},
            axes={"m": m, "n": n, "k": k, "groups": groups, "touched_groups": groups},
            measured_s=found["best"][~hot], left_out=reasons(found, hot), sites=site_numbers(m, n, k, groups),
        )  # fmt: skip


def _fixed(block: Block) -> tuple[str, ...]:
    layer = ("routing_s", "token_s", "pass_count", "foreign_ratio", "foreign_pass_ratio")
    return () if block.setting.expert_matrices_count > 1 else layer


FAMILY = Family(
    name="grouped_gemm",
    blocks=_blocks,
    scored=(WIDE,),
    files=("aic_moe", "aiter_moe", "aic_wideep_moe", "infersim_grouped_gemm"),
    allowed=tuple(f"aiconfigurator {device}" for device in ("a100_sxm_80gb", "h100_sxm", "b200_sxm", "l40s")),
    fixed=_fixed,
    least_rows_count=100,
    own=("foreign_ratio", "foreign_pass_ratio"),
    # Most bf16 layers were measured with untuned kernels alone there.
    alone=("aiconfigurator a100_sxm_80gb moe bfloat16",),
    # Kernels leave rows of other devices' experts out, or multiply them all.
    starts=({}, {"foreign_ratio": 0.9, "foreign_pass_ratio": 0.01, "pass_count": 0.3}),
)
