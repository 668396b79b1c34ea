"""Products inside layers and models that other projects timed: read as they ran, never fitted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """How an operator of the corpus reads as a product: SQL of its extents."""

    m: str = "tokens"
    """Rows."""
    n: str
    """Columns."""
    k: str
    """Depth."""
    batch: str = "1"
    """Products side by side."""
    where: str = "true"
    """Rows that map cleanly."""


def _read(column: str, count: int, start: str = "") -> tuple[str, ...]:
    """Return SQL of the numbers in a text of shapes, and the condition that there are so many of them."""
    numbers = f"regexp_extract_all({column}, '[0-9]+')"
    where = f"len({numbers}) = {count}" + (f" and starts_with(dtype, '{start}')" if start else "")
    return *(f"{numbers}[{place + 1}]::bigint" for place in range(count)), where


_Q, _KV, _FFN = "q_heads * head_dim // tp", "kv_heads * head_dim // tp", "ffn // tp"
LAYERS = {
    "layer_q_proj": Product(n=_Q, k="hidden"), "layer_k_proj": Product(n=_KV, k="hidden"),
    "layer_v_proj": Product(n=_KV, k="hidden"), "layer_o_proj": Product(n="hidden", k=_Q),
    "layer_gate_proj": Product(n=_FFN, k="hidden"), "layer_up_proj": Product(n=_FFN, k="hidden"),
    "layer_down_proj": Product(n="hidden", k=_FFN),
}  # fmt: skip
"""Linear layers by the profiler's name; logits and experts are left out, as their rows are not stated."""
_BF16 = "(c10::BFloat16, c10::BFloat16"
_MM, _ADDMM, _BMM = (_read("in_dims", count, _BF16) for count in (4, 5, 6))
TRACED = {
    "aten::mm": Product(m=_MM[0], k=_MM[1], n=_MM[3], where=_MM[4]),
    "aten::addmm": Product(m=_ADDMM[1], k=_ADDMM[2], n=_ADDMM[4], where=_ADDMM[5]),
    "aten::bmm": Product(batch=_BMM[0], m=_BMM[1], k=_BMM[2], n=_BMM[5], where=_BMM[6]),
}
_IN5, _IN6, _IN8 = (_read("in_shapes", count) for count in (5, 6, 8))
MODELS = {
    "call_function:addmm of type object": Product(m=_IN5[1], k=_IN5[2], n=_IN5[4], where=_IN5[5]),
    "call_function:bmm of type object": Product(batch=_IN6[0], m=_IN6[1], k=_IN6[2], n=_IN6[5], where=_IN6[6]),
    "call_function:matmul of type object": Product(
        batch=f"{_IN8[0]} * {_IN8[1]}", m=_IN8[2], k=_IN8[3], n=_IN8[7], where=_IN8[8]
    ),
}
FILES: Mapping[str, tuple[Mapping[str, Product], str]] = {
    "llmservingsim_layers": (LAYERS, "bf16"), "tracelens_ops": (TRACED, "bf16"), "neusight_model_ops": (MODELS, "fp32"),
}  # fmt: skip
"""Products by file, with the format of a case."""
HOST_TIMED = ("neusight",)
"""Sources whose every row includes the host's launch."""


def _blocks(folder: Path) -> Iterator[Block]:
    for file, (products, dtype) in FILES.items():
        path = folder / f"{file}.parquet"
        for name in kinds_of(path, "source", "device", "op", known=lambda *kind, of=products: kind[2] in of):
            yield _block(path, name, products[name[2]], dtype)


def _block(path: Path, name: tuple[str, str, str], product: Product, dtype: str) -> Block:
    source, device, op = name
    dropped = OLD if source in HOST_TIMED else OLD | EAGER
    axes = [f"{getattr(product, axis)} as x_{axis}" for axis in ("batch", "m", "n", "k")]
    where = f"source = ? and device = ? and op = ? and {lacks(dropped)} and {product.where}"
    found = best_rows(path, axes, where, name, positive=("x_m", "x_n", "x_k", "x_batch"))
    hot = (found["flags"] & HOT) > 0
    columns = {axis: found[f"x_{axis}"][~hot].astype(np.int64) for axis in ("batch", "m", "n", "k")}
    return Block(
        source=source, device=target_name(device), kind=op.rpartition(":")[2].partition(" ")[0], op="gemm",
        dtypes={"dtype": dtype}, axes=columns, measured_s=found["best"][~hot], left_out=reasons(found, hot),
        sites=site_numbers(columns["n"], columns["k"]), setting=Setting(host_timed=source in HOST_TIMED),
    )  # fmt: skip


FAMILY = Family(name="layer_products", form_name="gemm", blocks=_blocks, files=tuple(FILES), allowed=())
