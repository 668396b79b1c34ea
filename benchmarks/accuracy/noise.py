"""How much one software differs from itself between versions: `python -m benchmarks.accuracy.noise CORPUS`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy.family import EAGER, OLD, target_name

PAGE = Path(__file__).parents[2] / "docs/explain/accuracy_noise.md"
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


def main() -> None:
    """Print one line per file, device and format; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.noise", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--page", action="store_true", help="write docs/explain/accuracy_noise.md")
    options = parser.parse_args()
    lines = []
    for file, shape in SHAPES.items():
        for line in _lines(options.corpus / f"{file}.parquet", shape):
            print(line, flush=True)
            lines.append(line)
    if options.page:
        PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _lines(path: Path, shape: tuple[str, ...]) -> Iterator[str]:
    """Yield one row of the table per device and format; none where the file is absent."""
    import duckdb

    if not path.exists():
        return
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
    apart = _apart(path, shape)
    whole = f"""{pairs} select device, dtype, count(*), avg(size), median(size), quantile_cont(size, 0.9)
        from pairs group by all order by all"""
    each = f"{pairs} select device, dtype, framework, count(*), avg(size) from pairs group by all order by all"
    parts: dict[tuple[str, str], list[str]] = {}
    for device, dtype, framework, count, mean in duckdb.sql(each, params=[str(path)]).fetchall():
        parts.setdefault((device, dtype), []).append(f"{framework} {count}: {100 * mean:.1f}")
    for device, dtype, count, *sizes in duckdb.sql(whole, params=[str(path)]).fetchall():
        shown = " / ".join(f"{100 * size:.1f}" for size in sizes)
        by_framework = ", ".join(parts[device, dtype])
        alone = " | ".join(apart[device, dtype])
        yield f"| {path.stem} | {target_name(device)} | {dtype} | {count} | {shown} | {by_framework} | {alone} |"


def _apart(path: Path, shape: tuple[str, ...]) -> dict[tuple[str, str], tuple[str, str]]:
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
    return {
        (device, dtype): (f"{100 * alone:.0f} %", "–" if mean is None else f"{100 * mean:.1f} / {100 * tail:.1f}")
        for device, dtype, alone, mean, tail in duckdb.sql(query, params=[str(path)]).fetchall()
    }


if __name__ == "__main__":
    main()
