"""How much one software differs from itself between versions: `python -m benchmarks.accuracy.noise CORPUS`."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.family import EAGER, OLD, target_name
from benchmarks.accuracy.pages import PAGES, write_page

PAGE = PAGES / "accuracy_noise.md"
HEAD = """# How much measurements differ between versions of one software

Written by `python -m benchmarks.accuracy.noise CORPUS --page`. For every shape that one framework measured with its
newest version and with an older one on the same device: the newest time over the older one, less 1, in percent, mean
absolute / median / 90th percentile. Rows with host launch are left out. A prediction cannot be nearer to measurements
than they are to each other; bars that allow for it take 1.2 times the mean, all frameworks together.

*One alone*: share of the shapes that only one framework measured with its newest version; what is scored is the best of
those that did. *Against the best*: of shapes that several measured, each framework's time over the best, less 1, mean /
90th percentile: where only one of them ran, this much of its time is the choice of framework, not of the shape.

| file | device | format | pairs | all frameworks | by framework (pairs: mean) | one alone | against the best |
|---|---|---|---|---|---|---|---|
"""
SHAPES = {
    "aic_gemm": ("m", "n", "k"),
    "aic_decode_attention": ("batch", "kv_len", "q_heads", "kv_heads", "head_dim", '"window"'),
    "aic_context_attention": ("batch", "isl", "q_heads", "kv_heads", "head_dim", '"window"'),
    "aic_mla": ("batch", "isl", "q_heads"),
    "aic_moe": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "gated", "distribution"),
}
"""Columns that make a shape, by file."""


ALLOWANCE = 1.2
"""What bars that allow for noise take its mean times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How far measurements of one file, device and format are from each other."""

    file: str
    """Stem of the file."""
    device: str
    """Target's name."""
    dtype: str
    """The corpus' name of the format."""
    pair_count: int
    """Shapes that one framework measured with two versions."""
    size_ratios: tuple[float, float, float]
    """Mean, median and 90th percentile of how far two versions are apart."""
    by_framework: str
    """Pairs and mean of each framework, in words."""
    alone_ratio: float
    """Share of the shapes that one framework alone measured with its newest version."""
    apart_ratio: float | None
    """By how much frameworks are slower than the best of them, mean over shapes that several measured."""
    apart_p90_ratio: float | None
    """The same at the 90th percentile."""

    @property
    def line(self) -> str:
        """One row of the table."""
        sizes = " / ".join(f"{100 * size:.1f}" for size in self.size_ratios)
        apart = "–"
        if self.apart_ratio is not None and self.apart_p90_ratio is not None:
            apart = f"{100 * self.apart_ratio:.1f} / {100 * self.apart_p90_ratio:.1f}"
        cells = (
            self.file, self.device, self.dtype, str(self.pair_count), sizes, self.by_framework,
            f"{100 * self.alone_ratio:.0f} %", apart,
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print one line per file, device and format; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.noise", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_noise.md")
    options = parser.parse_args()
    lines = []
    for found in noises(options.corpus):
        print(found.line, flush=True)
        lines.append(found.line)
    if options.page:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n")


def noises(corpus: Path) -> Iterator[Noise]:
    """Yield how far measurements are from each other, by file, device and format; nothing for files that are absent."""
    for file, shape in SHAPES.items():
        if (path := corpus / f"{file}.parquet").exists():
            yield from _of_file(path, shape)


def _of_file(path: Path, shape: tuple[str, ...]) -> Iterator[Noise]:
    import duckdb

    keys = ", ".join(("device", "dtype", "framework", *shape))
    pairs = f"""
        with best as (
            select {keys.replace("framework", "split_part(software, ' ', 1) as framework")}, software,
                min(latency_us) as time, bit_and(flags & {OLD}) as old
            from read_parquet(?) where flags & {EAGER} = 0 group by all
        ), pairs as (
            select device, dtype, framework, abs(a.time / b.time - 1) as size
            from best a join best b using ({keys}) where a.old = 0 and b.old > 0
        )"""
    apart_of = _apart(path, shape)
    whole = f"""{pairs} select device, dtype, count(*), avg(size), median(size), quantile_cont(size, 0.9)
        from pairs group by all order by all"""
    each = f"{pairs} select device, dtype, framework, count(*), avg(size) from pairs group by all order by all"
    parts: dict[tuple[str, str], list[str]] = {}
    for device, dtype, framework, count, mean in duckdb.sql(each, params=[str(path)]).fetchall():
        parts.setdefault((device, dtype), []).append(f"{framework} {count}: {100 * mean:.1f}")
    for device, dtype, count, *sizes in duckdb.sql(whole, params=[str(path)]).fetchall():
        alone, apart, tail = apart_of[device, dtype]
        yield Noise(
            file=path.stem, device=target_name(device), dtype=dtype, pair_count=count,
            size_ratios=(sizes[0], sizes[1], sizes[2]), by_framework=", ".join(parts[device, dtype]),
            alone_ratio=alone, apart_ratio=apart, apart_p90_ratio=tail,
        )  # fmt: skip


def _apart(path: Path, shape: tuple[str, ...]) -> dict[tuple[str, str], tuple[float, float | None, float | None]]:
    """Return by device and format how many shapes one framework alone measured, and how far the others are apart."""
    import duckdb

    keys = ", ".join(("device", "dtype", *shape))
    query = f"""
        with best as (
            select {keys}, split_part(software, ' ', 1) as framework, min(latency_us) as time
            from read_parquet(?) where flags & {EAGER | OLD} = 0 group by all
        ), several as (
            select *, count(*) over (partition by {keys}) as frameworks, min(time) over (partition by {keys}) as least
            from best
        )
        select device, dtype, sum(if(frameworks = 1, 1, 0)) / sum(1.0 / frameworks),
            avg(if(frameworks > 1, time / least - 1, null)),
            quantile_cont(time / least - 1, 0.9) filter (where frameworks > 1)
        from several group by all"""
    found = duckdb.sql(query, params=[str(path)]).fetchall()
    return {(device, dtype): (alone, mean, tail) for device, dtype, alone, mean, tail in found}


if __name__ == "__main__":
    main()
