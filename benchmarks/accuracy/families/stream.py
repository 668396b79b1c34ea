"""Operators that stream through memory, and products as what has no form of its own is predicted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families import gemm
from benchmarks.accuracy.family import (
    EAGER,
    HOT,
    OLD,
    Block,
    Family,
    best_rows,
    kinds_of,
    lacks,
    reasons,
    site_numbers,
    target_name,
)  # fmt: skip
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.stream.stream_parts import GATHERING

LEAST_US = 2
"""Times of Vidur below this are left out: they are rounded to whole microseconds, which of 2 is a quarter at most."""
LEAST_ROWS = 120
"""Blocks with fewer rows are held out whole."""
PRODUCTS = ("aiconfigurator h100_sxm bfloat16", "aiconfigurator a100_sxm_80gb bfloat16", "neusight", "aiter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """How an operator of the corpus reads as cases."""

    op: str
    """Operator."""
    dtypes: Mapping[str, str]
    """Formats."""
    axes: Mapping[str, str]
    """SQL expression of each axis."""
    attributes: Mapping[str, str | bool] = field(default_factory=dict)
    """Choices."""


def _function(name: str, *, second: bool = False) -> Mapped:
    elements = "rows::bigint * cols"
    axes = {"elements": elements, "b": elements if second else "0"}
    return Mapped(op="elementwise", dtypes={"dtype": "fp32"}, axes=axes, attributes={"function": name})


NEUSIGHT = {
    **{name: _function(name, second=True) for name in ("add", "mul", "div", "pow")},
    **{f"{name}u": _function(name) for name in ("add", "mul", "div", "pow")},
    **{name: _function(name) for name in ("relu", "gelu", "tanh")},
    "softmax": Mapped(op="softmax", dtypes={"dtype": "fp32"}, axes={"rows": "rows", "columns": "cols"}),
    "ln": Mapped(op="layer_norm", dtypes={"dtype": "fp32"}, axes={"rows": "rows", "hidden": "cols"}),
}
LLMCOMPASS = {
    "softmax": Mapped(op="softmax", dtypes={"dtype": "fp16"}, axes={"rows": "m", "columns": "n"}),
    "layernorm": Mapped(op="layer_norm", dtypes={"dtype": "fp16"}, axes={"rows": "m", "hidden": "n"}),
}
AIC = {
    "quant_static": Mapped(
        op="quantise", dtypes={"dtype": "bf16", "out_dtype": "fp8_e4m3"}, axes={"rows": "m", "columns": "k"},
        attributes={"scaling": "given"},
    ),
}  # fmt: skip
_HALF, _WHOLE = {"dtype": "fp16"}, "tokens::bigint * hidden"
_NORM = Mapped(op="rms_norm", dtypes=_HALF, axes={"rows": "tokens", "hidden": "hidden"})
VIDUR = {
    "vidur_add": Mapped(
        op="elementwise", dtypes=_HALF, axes={"elements": _WHOLE, "b": _WHOLE}, attributes={"function": "add"}
    ),
    "vidur_mlp_act": Mapped(
        op="elementwise", dtypes=_HALF, attributes={"function": "swiglu"},
        axes={"elements": "tokens::bigint * ffn // tp", "b": "tokens::bigint * ffn // tp"},
    ),
    "vidur_input_layernorm": _NORM,
    "vidur_post_attention_layernorm": _NORM,
    "vidur_attn_rope": Mapped(
        op="rotary_embedding", dtypes=_HALF,
        axes={"batch": "1", "heads": "(n_head + n_kv_head) // tp", "positions": "tokens", "dim": "hidden // n_head"},
    ),
    "vidur_emb": Mapped(
        op="embedding", dtypes=_HALF, axes={"tokens": "tokens", "dim": "hidden", "vocab": "vocab // tp"}
    ),
}  # fmt: skip
LLMSERVINGSIM = {
    "layer_embedding": Mapped(
        op="embedding", dtypes={"dtype": "bf16"}, axes={"tokens": "tokens", "dim": "hidden", "vocab": "vocab // tp"}
    ),
}  # fmt: skip
FILES = {
    "neusight_elementwise": (NEUSIGHT, "true"), "aic_quantize": (AIC, "true"), "llmcompass": (LLMCOMPASS, "true"),
    "llmservingsim_layers": (LLMSERVINGSIM, f"latency_us >= {LEAST_US}"),
    "vidur_layers": (VIDUR, f"gated = 1 and n_head % tp = 0 and n_kv_head % tp = 0 and latency_us >= {LEAST_US}"),
}  # fmt: skip
"""Operators by file, with the rows that map cleanly; `quant_dynamic_minus_static` is no time of a kernel."""
HOST_TIMED = ("neusight", "llmcompass")
"""Sources whose every row includes the host's launch."""


def _blocks(folder: Path) -> Iterator[Block]:
    for file, (mapped, where) in FILES.items():
        path = folder / f"{file}.parquet"
        for name in kinds_of(path, "source", "device", "op", known=partial(_maps, mapped)):
            yield _block(path, name, mapped[name[2]], where)
    for block in gemm.FAMILY.blocks(folder):
        if any(block.name.startswith(start) for start in PRODUCTS) and block.op == "gemm":
            yield replace(block, kind=f"product {block.kind}", setting=_setting(block.source))


def _maps(mapped: Mapping[str, Mapped], _source: str, _device: str, op: str) -> bool:
    return op in mapped


def _setting(source: str) -> Setting:
    return Setting(host_timed=source in HOST_TIMED)


def _block(path: Path, name: tuple[str, str, str], mapped: Mapped, where: str) -> Block:
    source, device, op = name
    dropped = OLD if source in HOST_TIMED else OLD | EAGER
    axes = [f"{expression} as x_{axis}" for axis, expression in mapped.axes.items()]
    found = best_rows(path, axes, f"source = ? and device = ? and op = ? and {lacks(dropped)} and {where}", name)
    hot = (found["flags"] & HOT) > 0
    columns: dict[str, Any] = {axis: found[f"x_{axis}"][~hot].astype(np.int64) for axis in mapped.axes}
    return Block(
        source=source, device=target_name(device), kind=op, op=mapped.op, dtypes=dict(mapped.dtypes), axes=columns,
        attributes=dict(mapped.attributes), measured_s=found["best"][~hot], left_out=reasons(found, hot),
        sites=site_numbers(*columns.values()), setting=_setting(source),
        least_s=1e-6 * LEAST_US if source == "vidur" else 0.0,
    )  # fmt: skip


def _fixed(block: Block) -> tuple[str, ...]:
    """Return the scalars that a block says nothing about."""
    fixed = {"launch_s"} if block.setting.host_timed else {"host_floor_s", "host_gap_s"}
    if block.op != "gemm":
        fixed |= {"tensor_ratio"}
    if block.op in ("elementwise", "quantise", "rotary_embedding", "embedding", "gemm"):
        fixed |= {"row_s", "row_passes_count", "row_residency_ratio", "unaligned_ratio"}
        # What gathers is bound by its addresses, not by the memory it reads.
        fixed |= {"read_ratio", "write_ratio"} if block.op in GATHERING else {"row_bytes_per_clock"}
    if block.source == "vidur" and block.op == "elementwise":
        fixed |= {"write_ratio", "vector_ratio", "special_flop_count"}  # every row reads and writes in one proportion
    if block.attributes.get("function") != "swiglu":
        fixed |= {"gated_ratio"}
    return tuple(sorted(fixed))


FAMILY = Family(
    name="stream",
    blocks=_blocks,
    files=(*FILES, *gemm.FILES),
    allowed=("neusight", "aiconfigurator", "vidur", "aiter"),
    fixed=_fixed,
    least_rows_count=LEAST_ROWS,
)  # fmt: skip
