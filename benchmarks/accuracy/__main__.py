"""Scores the coefficients that ship on a corpus: `python -m benchmarks.accuracy CORPUS`. Nothing is fitted."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Family
from benchmarks.accuracy.published import PUBLISHED
from benchmarks.accuracy.scores import Score, held_out, score, shown, summary
from nearpeak.errors import NearpeakError
from nearpeak.predict.prediction import form_of

PAGE = Path(__file__).parents[2] / "docs/explain/accuracy.md"
HEAD = """# How far predictions are from measurements

Written by `python -m benchmarks.accuracy CORPUS --page`; nothing is fitted by it. Errors are of predicted over
measured time, in percent: mean absolute / median / 90th percentile / signed bias. *Roofline* is the mean absolute error
of the plain roofline at documented rates on the same rows. *Covered*: rows inside the 90 % interval.

Which bars these figures reach, in one table: [bars](accuracy_bars.md).

Rows: newest software, best implementation per shape, no host launch (except NeuSight, whose every row has it), no
row faster than 0.95 of the roofline (*hot*, inputs in cache; their count is in the last column).

*sites*: scalars and corrections were fitted on half of the sites (pairs of n and k; whole shapes of attention
and of layers of experts) of this device, intervals set on a quarter, these rows are of the remaining quarter. *device*:
no row of this device was fitted. *source*: measured by another project
than the rows behind the scalars, or of another operation; intervals are those of `--elsewhere`, with the spread between
sources that all other sources show (`python -m benchmarks.accuracy.spread`). The form was shaped while
looking at the fitted devices, so *sites* holds out scalars, not structure.

*Plain*: mean absolute error of the scalars alone, without the bounded correction (the switch `--no-correction`).
"""

COLUMNS = """
| family | block | held out | rows | all | above 50 us | plain | roofline | covered | half width | bound decides | hot |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Print one line per block; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm; all by default")
    parser.add_argument("--only", default="", help="text that source, device and format must contain")
    parser.add_argument("--every-row", action="store_true", help="score every row, not only held-out sites")
    parser.add_argument("--page", action="store_true", help="write docs/explain/accuracy.md")
    options = parser.parse_args()
    _check(parser, options.corpus, families(options.family))
    if options.page and (options.family or options.only or options.every_row):
        parser.error("--page takes all families, blocks and held-out rows; leave the other options away")
    lines: list[str] = []
    scored: dict[str, list[Score]] = {}
    for family in families(options.family):
        for line, found in _readable(family, options.corpus, options.only, every_row=options.every_row):
            print(line, flush=True)
            lines.append(line)
            scored.setdefault(family.form.name, []).extend([] if found is None else [found])
    sums = summary(scored)
    print(sums)
    if options.page:
        whole = HEAD + PUBLISHED + sums + COLUMNS + "\n".join(lines) + "\n"
        PAGE.write_text(whole, encoding="utf-8")


def _check(parser: argparse.ArgumentParser, corpus: Path, chosen: Sequence[Family]) -> None:
    """Refuse a folder without a file of the corpus' names; name its other tables, which no family reads."""
    known = {file for family in chosen for file in family.files}
    tables = sorted(path for path in corpus.glob("*.parquet"))
    if not any(path.stem in known for path in tables):
        parser.error(f"{corpus}: no table to score; it may hold {', '.join(f'{one}.parquet' for one in sorted(known))}")
    for path in tables:
        if path.stem not in known:
            print(f"{path.name}: not read", file=sys.stderr)


def _readable(family: Family, corpus: Path, only: str, *, every_row: bool) -> Iterator[tuple[str, Score | None]]:
    """Yield what `_lines` does; where a table lacks a column, the line that says so."""
    import duckdb

    try:
        yield from _lines(family, corpus, only, every_row=every_row)
    except duckdb.Error as error:
        yield f"| {family.name} | its tables | not read: {str(error).splitlines()[0]} |" + " |" * 9, None


def _lines(family: Family, corpus: Path, only: str, *, every_row: bool) -> Iterator[tuple[str, Score | None]]:
    """Yield one row of the table per block with its score; a block that cannot be predicted says why, without one."""
    for block in family.blocks(corpus):
        if only not in block.name or form_of(block.op, block.phase) is not family.form:
            continue  # products are fitted for what has no form of its own, but predicted by theirs
        try:
            rows = held_out(family, block, every_row=every_row)
        except NearpeakError as error:
            yield f"| {family.name} | {block.name} | not scored: {error} |" + " |" * 9, None
            continue
        if rows is not None:
            found = score(rows)
            yield line_of(family.name, found), found
        elif not len(block.measured_s):
            hot = f", {block.hot_count} shapes in cache" if block.hot_count else ""
            print(f"{family.name}: {block.name}: no row left (older software, host launch{hot})", file=sys.stderr)


def line_of(family: str, found: Score) -> str:
    """Return one row of the table."""
    cells = (
        family, found.name, found.protocol, f"{found.all.row_count}", shown(found.all), shown(found.long),
        f"{100 * found.plain_ratio:.1f}", f"{100 * found.roofline_ratio:.1f}", f"{100 * found.covered_ratio:.0f} %",
        f"{100 * found.half_width_ratio:.0f} %",
        f"{100 * found.decided_ratio:.1f} %", f"{found.hot_count}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
