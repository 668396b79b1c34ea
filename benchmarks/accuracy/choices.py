"""What libraries' choices and boards leave open: `python -m benchmarks.accuracy.choices CORPUS`. Fits nothing.

Boards of one chip that ran the very same solver on the very same shape, what neighbours of a shape tell about it, and
which tiles a library took for products.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families.conv import FAMILY, miopen_kernels
from benchmarks.accuracy.families.gemm import FAMILY as PRODUCTS
from benchmarks.accuracy.family import Block, folds
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.scores import error_of, rows_of
from nearpeak.bounds.bound_table import bound_table
from nearpeak.core.answers.bound import Policy
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

PAGE = PAGES / "accuracy_choices.md"
HEAD = """# What boards and choices of libraries leave open

Written by `python -m benchmarks.accuracy.choices CORPUS --page`; nothing is fitted by it. Errors are mean absolute
ones of predicted over measured time, in percent.

"""
BOARDS = """## Convolutions: one chip, one solver, one shape, two boards

Both boards of a pair hold the same chip. Rows where the fastest solver is the same one on both, by pass and format:
the median ratio of their times, and how far the first board's time still lies from the second's times the median ratio
of times as long as it (tenths of the rows). Whoever knew the second board's measurement exactly would still err by
this: solver, shape and chip are equal, what differs is the state of the board (clock, power, what ran before).

| boards | pass and format | pairs | median ratio | error that is left | 10th and 90th percentile of what is left |
|---|---|---|---|---|---|
"""
NEIGHBOURS = """
## Convolutions: what the nearest shapes tell

MIOpen's rows of held-out sites. *Form*: the predictions that ship. *Neighbours*: these times what the form missed on
the eight nearest fitted shapes (median; nearest by the logarithms of all axes, same pass and format). *Same solver*:
neighbours with the solver that won the scored row, which no prediction can know. What stays is not in the shape.
*One alone*: share of rows for which one solver was recorded, so that the best of several is not known.

| device | pass and format | rows | roofline | form | neighbours | same solver | one alone |
|---|---|---|---|---|---|---|---|
"""
ALGORITHMS = """
## Convolutions: which beat the bound of classical algorithms

Rows of all folds whose bound is more than the last cache could feed. *Classical*: faster than the bound that counts
every product of the definition (assumption A2). *Any*: faster than the bound of any bilinear algorithm (A19). A kernel
of one tap is a plain product, for which libraries have no fast algorithm: none of these may beat either bound, and
none of those whose solver's name is not Winograd's or FFT's. Predictions of convolutions with more than one tap are
held to *any*, as the libraries that they are of run Winograd's algorithm and FFT.

| source | taps | solver | rows | classical | any |
|---|---|---|---|---|---|
"""
TILES = """
## Products in fp32 on the MI100: tiles of rocBLAS

NeuSight's rows with m and n of 64 and more, by the tile that the name of the kernel tells (MT of Tensile). For some
(n, k) the library takes tiles a sixteenth of what fits, which is two to three times slower; neighbouring (n, k) get
large ones. A site lies in one fold whole, and such sites happen to lie in the held-out ones.

| tile, elements | sites | rows | error | bias |
|---|---|---|---|---|
"""
SMALL_TILE, WIDE = 32 * 32, 64
"""Elements of a tile that counts as small, and least m and n of products for which it is."""
PAIRS = (("amd_mi50", "amd_mi60"), ("amd_gfx900_56cu", "amd_gfx900_64cu"))
"""Boards with the chips gfx906 and gfx900 (corpus names)."""
SHAPE = "batch, cin, hin, win, cout, hout, wout, kh, kw, sh, sw, ph, pw, dh, dw, groups, layout"
LEAST_PAIRS = 50
NEAREST = 8
BANDS = 10


def main() -> None:
    """Print the tables; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.choices", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_choices.md")
    options = parser.parse_args()
    text = HEAD
    for head, lines in (
        (BOARDS, _board_lines),
        (NEIGHBOURS, _neighbour_lines),
        (ALGORITHMS, _algorithm_lines),
        (TILES, _tile_lines),
    ):
        text += head
        for line in lines(options.corpus):
            print(line, flush=True)
            text += line + "\n"
    if options.page:
        write_page(PAGE, text)


def _board_lines(corpus: Path) -> Iterator[str]:
    """Yield one row per pair of boards, pass and format."""
    import duckdb

    path = corpus / "miopen_conv.parquet"
    for first, second in PAIRS:
        query = f"""
            select op, dtype, list(a.latency_us) as one, list(b.latency_us) as other
            from (select * from read_parquet($1) where device = $2) a
            join (select * from read_parquet($1) where device = $3) b using (op, dtype, kernel, {SHAPE})
            group by all order by all"""
        for op, dtype, one, other in duckdb.execute(query, [str(path), first, second]).fetchall():
            if len(one) >= LEAST_PAIRS:
                rest, ratio = left(np.array(one), np.array(other))
                error = 100 * float(np.abs(rest - 1).mean())
                ends = np.quantile(rest, [0.1, 0.9])
                names = f"{first} / {second} | {op} {dtype} | {len(one)}"
                yield f"| {names} | {ratio:.2f} | {error:.1f} | {1 / ends[1]:.2f} to {1 / ends[0]:.2f} |"


def left(one: Any, other: Any) -> tuple[Any, float]:
    """Return predicted over measured `one` from `other` by the ratio of cases as long, and the ratio of all.

    >>> rest, ratio = left(np.array([2.0, 4.0, 8.0]), np.array([1.0, 2.0, 4.0]))
    >>> rest.tolist(), ratio
    ([1.0, 1.0, 1.0], 2.0)
    """
    ratios = one / other
    edges = np.quantile(other, np.linspace(0, 1, BANDS + 1)[1:-1])
    bands = np.searchsorted(edges, other, side="right")
    medians = {band: np.median(ratios[bands == band]) for band in np.unique(bands)}
    return np.array([medians[band] for band in bands]) / ratios, float(np.median(ratios))


def _neighbour_lines(corpus: Path) -> Iterator[str]:
    """Yield one row per block of MIOpen."""
    for block in FAMILY.blocks(corpus):
        if block.source != "miopen" or not FAMILY.is_allowed(block):
            continue
        kernels, alone = miopen_kernels(corpus, block)
        rows = np.flatnonzero(folds(block) == 3)
        every = np.arange(len(block.measured_s))
        found = predict_table(block.table(every), target_of(block.device), block.setting_of(every)).predicted_s
        roofline = bound_table(block.table(rows), target_of(block.device), Policy()).roofline_s
        times = [roofline, found[rows], by_neighbours(block, found), by_neighbours(block, found, kernels)]
        errors = [error_of(time, block.measured_s[rows]) for time in times]
        shown = " | ".join("–" if one is None else f"{100 * one.mean_ratio:.1f}" for one in errors)
        yield f"| {block.device} | {block.kind} | {len(rows)} | {shown} | {100 * alone[rows].mean():.0f} % |"


def by_neighbours(block: Block, found: Any, kernels: Any = None) -> Any:
    """Return the predictions of held-out rows times what was missed on the nearest fitted ones."""
    places = np.stack([np.log2(column + 1.0) for column in block.axes.values()], 1)
    known, rows = np.flatnonzero(folds(block) <= 1), np.flatnonzero(folds(block) == 3)
    missed = np.log(block.measured_s[known] / found[known])
    times = found[rows].copy()
    for place, row in enumerate(rows):
        alike = np.ones(len(known), dtype=bool) if kernels is None else kernels[known] == kernels[row]
        if not alike.any():
            continue
        apart = np.abs(places[known[alike]] - places[row]).sum(1)
        near = np.argsort(apart, kind="stable")[:NEAREST]
        times[place] *= np.exp(np.median(missed[alike][near]))
    return times


def _algorithm_lines(corpus: Path) -> Iterator[str]:
    """Yield one row per source, number of taps and kind of solver."""
    found: dict[tuple[str, str, str], Any] = {}
    for block in FAMILY.blocks(corpus):
        rows = rows_of(block, np.arange(len(block.measured_s)), "all")
        if rows is None:
            continue
        several = block.axes["kh"] * block.axes["kw"] > 1
        solvers = _solvers(corpus, block)
        for taps, where in (("1", ~several), ("more", several)):
            for solver in np.unique(solvers[where]):
                own = where & (solvers == solver) & rows.cold
                counts = [own.sum(), *((own & (rows.measured_s < one)).sum() for one in (rows.classical_s, rows.any_s))]
                key = (block.source, taps, solver)
                found[key] = found.get(key, 0) + np.array(counts)
    for key in sorted(found):
        yield f"| {' | '.join(key)} | {' | '.join(map(str, found[key]))} |"


def _solvers(corpus: Path, block: Block) -> Any:
    """Return the kind of the solver of each row: Winograd's algorithm, FFT, another, or not recorded."""
    if block.source != "miopen":
        return np.full(len(block.measured_s), "not recorded", dtype=object)
    names = [name.lower() for name in miopen_kernels(corpus, block)[0]]
    kinds = [next((kind for kind in ("winograd", "fft") if kind in name), "another") for name in names]
    return np.array(kinds, dtype=object)


def _tile_lines(corpus: Path) -> Iterator[str]:
    """Yield one row per kind of tile and of sites."""
    (block,) = (one for one in PRODUCTS.blocks(corpus) if one.name == "neusight mi100 float32")
    rows = np.flatnonzero((block.axes["m"] >= WIDE) & (block.axes["n"] >= WIDE))
    found = predict_table(block.table(rows), target_of(block.device), block.setting_of(rows)).predicted_s
    small = _tile_elements(corpus, block, rows) <= SMALL_TILE
    held_out = folds(block)[rows] == 3
    for name, tiles in ((f"up to {SMALL_TILE}", small), ("larger", ~small)):
        for kind, sites in (("fitted on, or for intervals", ~held_out), ("held out", held_out)):
            chosen = tiles & sites
            error = error_of(found[chosen], block.measured_s[rows][chosen])
            if error is not None:
                sizes = f"{100 * error.mean_ratio:.1f} | {100 * error.bias_ratio:+.1f}"
                yield f"| {name} | {kind} | {error.row_count} | {sizes} |"


def _tile_elements(corpus: Path, block: Block, rows: Any) -> Any:
    """Return the elements of the tile of each row's fastest kernel, of which the name tells m and n."""
    import duckdb

    query = """
        with best as (
            select coalesce(batch, 1) as batch, m, n, k, arg_min(kernel, latency_us) as kernel
            from read_parquet(?) where device = 'amd_mi100' and dtype = 'float32' group by all
        )
        select batch, m, n, k, regexp_extract(kernel, 'MT([0-9]+)x[0-9]+x', 1)::int
            * regexp_extract(kernel, 'MT[0-9]+x([0-9]+)x', 1)::int
        from best"""
    found = duckdb.execute(query, [str(corpus / "neusight_gemm.parquet")]).fetchall()
    by_shape = {tuple(row[:4]): row[4] for row in found}
    shapes = zip(*(block.axes[name][rows].tolist() for name in ("batch", "m", "n", "k")), strict=True)
    return np.array([by_shape[shape] for shape in shapes])


if __name__ == "__main__":
    main()
