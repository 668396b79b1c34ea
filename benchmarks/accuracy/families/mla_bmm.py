"""Products per head that absorb the up-projections of latent attention: other sizes than products are fitted on."""

from collections.abc import Iterator
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
)
from nearpeak.prediction.kernel_model import Setting

EXTENTS = {"mla_gen_pre": (512, 128), "mla_gen_post": (128, 512)}
"""Columns and depth of one head's product: DeepSeek-V3's latent of 512, heads of 128 (arXiv:2412.19437, table 1)."""
KNOWN = {("bfloat16", op) for op in EXTENTS}
"""Formats and operators that are read."""
_COLUMNS = ("source", "device", "dtype", "op")


def _blocks(folder: Path) -> Iterator[Block]:
    path = folder / "aic_mla_bmm.parquet"
    for source, device, dtype, op in kinds_of(path, *_COLUMNS, known=lambda *kind: kind[2:4] in KNOWN):
        yield _block(path, source, device, dtype, op)


def _block(path: Path, source: str, device: str, dtype: str, op: str) -> Block:
    where = f"source = ? and device = ? and dtype = ? and op = ? and {lacks(OLD | EAGER)}"
    found = best_rows(path, ("tokens", "q_heads"), where, (source, device, dtype, op))
    hot, (n, k) = (found["flags"] & HOT) > 0, EXTENTS[op]
    axes = {name: found[column][~hot].astype(np.int64) for name, column in (("m", "tokens"), ("batch", "q_heads"))}
    axes |= {name: np.full(len(axes["m"]), extent) for name, extent in (("n", n), ("k", k))}
    return Block(
        source=source, device=target_name(device), kind=f"{op} {dtype}", op="gemm", dtypes={"dtype": "bf16"}, axes=axes,
        measured_s=found["best"][~hot], left_out=reasons(found, hot), sites=site_numbers(axes["m"], axes["batch"]),
        setting=Setting(weight_copies_count=1),
    )  # fmt: skip


FAMILY = Family(name="mla_bmm", form_name="gemm", blocks=_blocks, files=("aic_mla_bmm",), allowed=())
