"""Reads product measurements of a corpus folder: clean rows, newest software, the best implementation per shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.names import PRODUCTS, READY_SOURCES, Product, target_name

GEMM_FILES = (
    "aic_gemm", "aiter_gemm", "neusight_gemm", "infersim_gemm", "deepbench_gemm", "simumax_gemm",
)  # fmt: skip
OLD, EAGER, HOT = 0x01, 0x04, 0x40
"""Flags of the corpus: superseded software; host launch included; faster than the roofline, as inputs lay in cache."""
HOST_TIMED = ("neusight",)
"""Sources whose every row includes the host's launch, which then is part of what is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Best times of one source, device and format, as columns."""

    source: str
    """Project that measured."""
    device: str
    """Target's name."""
    dtype: str
    """The corpus' name of the format."""
    product: Product
    """The case that the rows are."""
    axes: dict[str, Any]
    """m, n, k, batch."""
    measured_s: Any
    """Best time of each shape."""
    hot_count: int
    """Shapes left out as their best time beats the roofline: inputs lay in cache."""

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"{self.source} {self.device} {self.dtype}"


def blocks(folder: Path, *, only: str = "") -> Iterator[Block]:
    """Yield the blocks of all product files of `folder`.

    Args:
        only: text that the name of a block must contain.
    """
    import duckdb

    for file in GEMM_FILES:
        path = folder / f"{file}.parquet"
        if not path.exists():
            continue
        names = "select distinct source, device, dtype from read_parquet(?) order by all"
        for source, device, dtype in duckdb.sql(names, params=[str(path)]).fetchall():
            if dtype in PRODUCTS and only in f"{source} {target_name(device)} {dtype}":
                yield _block(path, source, device, dtype)


def _block(path: Path, source: str, device: str, dtype: str) -> Block:
    """Return one block; a row that is not a positive finite time or shape is refused by name."""
    import duckdb

    columns = {row[0] for row in duckdb.sql("describe select * from read_parquet(?)", params=[str(path)]).fetchall()}
    batch = "coalesce(batch, 1)" if "batch" in columns else "1"
    dropped = OLD if source in HOST_TIMED else OLD | EAGER
    query = (
        f"select {batch} as batch, m, n, k, min(latency_us) as best, arg_min(flags, latency_us) as flags "
        f"from read_parquet(?) where device = ? and dtype = ? and source = ? and flags & {dropped} = 0 "
        "group by all order by all"
    )
    found = duckdb.sql(query, params=[str(path), device, dtype, source]).fetchnumpy()
    plain = {name: np.asarray(column) for name, column in found.items()}
    bad = ~np.isfinite(plain["best"]) | (plain["best"] <= 0) | (plain["m"] < 1) | (plain["n"] < 1) | (plain["k"] < 1)
    if bad.any():
        raise SystemExit(f"{path.name}: {source} {device} {dtype}: {bad.sum()} rows without a positive time or shape")
    hot = (plain["flags"] & HOT) > 0
    known = PRODUCTS[dtype]
    product = Product(
        op=known.op, dtype=known.dtype, quantises_input=known.quantises_input and source not in READY_SOURCES
    )
    return Block(
        source=source, device=target_name(device), dtype=dtype, product=product,
        axes={name: plain[name][~hot].astype(np.int64) for name in ("m", "n", "k", "batch")},
        measured_s=plain["best"][~hot].astype(np.float64) * 1e-6, hot_count=int(hot.sum()),
    )  # fmt: skip


def folds(block: Block) -> Any:
    """Return the fold of each row, 0 to 3: a site, that is a pair of n and k, lies in one fold on every device.

    Folds 0 and 1 are fitted on, 2 sets the intervals, 3 is held out for scores.
    """
    mixed = block.axes["n"].astype(np.uint64) * np.uint64(2654435761) + block.axes["k"].astype(np.uint64) * np.uint64(
        320740437
    )
    mixed ^= mixed >> np.uint64(13)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(40)) % np.uint64(4)).astype(int)
