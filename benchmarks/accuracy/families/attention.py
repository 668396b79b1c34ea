"""Attention: one new token against a cache, causal prefill, and multi-head latent attention."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.accuracy.family import (
    EAGER,
    HOT,
    OLD,
    SAMPLE,
    Block,
    Family,
    best_rows,
    kinds_of,
    lacks,
    reasons,
    site_numbers,
    target_name,
)
from nearpeak.targets import target_of

SCALARS_OF_DECODE = (
    "decode_launch_clocks", "decode_dram_ratio", "decode_l2_bytes_per_clock", "decode_residency_ratio",
    "decode_hidden_tail_ratio", "decode_start_clocks", "decode_row_clocks", "decode_step_clocks", "decode_lone_ratio",
    "combine_clocks", "split_clocks", "sequence_clocks", "decode_window_clocks", "decode_generic_ratio",
    "alone_clocks", "alone_key_clocks", "windowed_head_clocks", "decode_vast_ratio",
    "latent_launch_ratio", "latent_start_ratio", "latent_step_ratio", "latent_row_ratio", "latent_l2_ratio",
)  # fmt: skip
_LATENT = {"dim": 576, "v_dim": 512, "kv_heads": 1}
"""DeepSeek-V3's latent attention in its absorbed form (arXiv:2405.04434, section 2.1): 512 latent, 64 rotary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the rows of one operator of the corpus read as cases."""

    file: str
    """Stem of the file."""
    name: str
    """The corpus' name of the operator."""
    axes: tuple[str, ...]
    """SQL of the axes, named as those of `attention`."""
    fixed: dict[str, int] = field(default_factory=dict)
    """Axes that all rows share."""
    attributes: dict[str, str | bool] = field(default_factory=lambda: {"causal": True, "align": "lower_right"})
    """Choices that all rows share."""


_HEADS = ("batch", "q_heads as heads", "kv_heads", "head_dim as dim")
READINGS = (
    Reading(
        file="aic_decode_attention", name="decode_attention",
        axes=(*_HEADS, "1 as q", "kv_len as kv", '"window" as "left"'),
    ),
    Reading(
        file="aic_context_attention", name="context_attention",
        axes=(*_HEADS, "isl as q", "isl as kv", '"window" as "left"'),
    ),
    Reading(
        file="aic_encoder_attention", name="encoder_attention",
        axes=("batch", "q_heads as heads", "q_heads as kv_heads", "head_dim as dim", "isl as q", "isl as kv"),
        attributes={"causal": False},
    ),
    Reading(
        file="aic_mla", name="mla_context",
        axes=("batch", "q_heads as heads", "q_heads as kv_heads", "isl as q", "isl as kv"),
        fixed={"dim": 192, "v_dim": 128},
    ),
    Reading(
        file="aic_mla", name="mla_decode", axes=("batch", "q_heads as heads", "1 as q", "kv_len as kv"),
        fixed=_LATENT, attributes={"causal": True, "align": "lower_right", "latent": True},
    ),
    Reading(file="infersim_attention", name="mha_decode", axes=(*_HEADS, "1 as q", "kv_len as kv")),
    Reading(
        file="infersim_attention", name="mla_decode", axes=("batch", "q_heads as heads", "1 as q", "kv_len as kv"),
        fixed=_LATENT, attributes={"causal": True, "align": "lower_right", "latent": True},
    ),
)  # fmt: skip
FORMATS = {
    "bfloat16_kvbfloat16": ("bf16", "bf16"), "bf16_kvbf16": ("bf16", "bf16"), "bfloat16_kvfp8": ("bf16", "fp8_e4m3"),
    "fp8_kvfp8": ("fp8_e4m3", "fp8_e4m3"), "bfloat16": ("bf16", "bf16"),
}  # fmt: skip
"""Formats of products and of the cache by the corpus' name of them."""
_COLUMNS = ("source", "device", "dtype", "op")
KNOWN = {(dtype, reading.name) for dtype in FORMATS for reading in READINGS}
"""Formats and operators that are read."""


def _blocks(folder: Path) -> Iterator[Block]:
    for reading in READINGS:
        path = folder / f"{reading.file}.parquet"
        for source, device, dtype, op in kinds_of(path, *_COLUMNS, known=lambda *kind: kind[2:4] in KNOWN):
            if op == reading.name:
                yield _block(path, reading, source, device, dtype)


def _block(path: Path, reading: Reading, source: str, device: str, dtype: str) -> Block:
    where = f"source = ? and device = ? and dtype = ? and op = ? and {lacks(OLD | EAGER)}"
    names = [axis.split(" as ")[-1].strip('"') for axis in reading.axes]
    positive = [name for name in names if name != "left"]
    found = best_rows(path, reading.axes, where, (source, device, dtype, reading.name), positive)
    hot = (found["flags"] & HOT) > 0
    axes = {name: found[name][~hot].astype(np.int64) for name in names}
    axes |= {name: np.full((~hot).sum(), value) for name, value in reading.fixed.items()}
    products, stored = FORMATS[dtype]
    return Block(
        source=source, device=target_name(device), kind=f"{reading.name} {dtype}", op="attention",
        dtypes={"dtype": products, "kv_dtype": stored}, attributes=reading.attributes, axes=axes,
        measured_s=found["best"][~hot], left_out=reasons(found, hot),
        sites=site_numbers(*(axes[name] for name in ("batch", "heads", "q", "kv", "dim"))),
    )  # fmt: skip


def _fixed(block: Block) -> tuple[str, ...]:
    if block.kind.startswith("decode"):
        return tuple(s.name for s in FAMILY.model.coefficients if s.name not in SCALARS_OF_DECODE)
    if block.kind.startswith("mla_context") and target_of(block.device).architecture == "hopper":
        return ()  # one token runs as a decode step there
    return SCALARS_OF_DECODE


FAMILY = Family(
    name="attention",
    blocks=_blocks,
    files=tuple(dict.fromkeys(reading.file for reading in READINGS)),
    allowed=tuple(
        f"aiconfigurator {device} {op}"
        for device in ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "l40s")
        for op in ("decode_attention", "context_attention", "mla_context")
    ),
    fixed=_fixed,
    sample_count=2 * SAMPLE,
    # Nothing but FlashAttention-2 was measured there, which takes 1.5 times as long as the best on an L40S.
    alone=("aiconfigurator a100_sxm_80gb decode",),
    usual_rows_count=3.0,
    shared_rows_count=150.0,
)
