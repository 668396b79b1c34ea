"""Scores the coefficients that ship on a corpus: `python -m benchmarks.accuracy CORPUS`. Nothing is fitted."""

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks.accuracy import refusals
from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, UnreadTable
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.published import PUBLISHED
from benchmarks.accuracy.scores import Score, held_out, score, shown, summary
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.prediction.model_choice import model_of

PAGE = PAGES / "accuracy.md"
HEAD = """# How far predictions are from measurements

Written by `python -m benchmarks.accuracy CORPUS --page`; nothing is fitted by it. Errors are of predicted over
measured time, in percent: mean absolute / median / 90th percentile / signed bias. *Roofline* is the mean absolute error
of the plain roofline at documented rates on the same rows. *Covered*: rows inside the 90 % interval.

Which bars these figures reach, in one table: [bars](accuracy_bars.md).

Rows: newest software, best implementation per shape, no host launch (except NeuSight, whose every row has it), no
row faster than 0.95 of the roofline (inputs in cache). The last column counts the rows of a block that are not scored,
by reason; with those that are scored they are all that the corpus has of it.

*sites*: scalars and corrections were fitted on half of the sites (pairs of n and k; whole shapes of attention
and of layers of experts) of this device, intervals set on a quarter, these rows are of the remaining quarter. *device*:
no row of this device was fitted. *source*: measured by another project
than the rows behind the scalars, or of another operation; intervals are those of `--elsewhere`, with the spread between
sources that all other sources show (`python -m benchmarks.accuracy.spread`). The form was shaped while
looking at the fitted devices, so *sites* holds out scalars, not structure. Two constants were set on half of the rows
that *source* scores: the clocks of a chunk of delta rules, and those of an indexed element of PyTorch's kernels.

*Plain*: mean absolute error of the scalars alone, without the bounded correction (the switch `--no-correction`).
"""

REFUSED = """
## Not scored

Rows that no line above counts, and why; superseded software, repeats and what a line itself names come on top.

| table | rows | why |
|---|---|---|
"""
COLUMNS = """
| family | block | held out | rows | all | above 50 us | plain | roofline | covered | width | by bound | not scored |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Print one line per block; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--family", default="", help="one family, e.g. gemm; all by default")
    parser.add_argument("--only", default="", help="text that source, device and format must contain")
    parser.add_argument("--every-row", action="store_true", help="score every row, not only held-out sites")
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy.md")
    options = parser.parse_args()
    if options.page and (options.family or options.only or options.every_row):
        parser.error("--page takes all families, blocks and held-out rows; leave the other options away")
    try:
        _check(options.corpus, families(options.family))
    except NearpeakError as error:
        _leave(str(error), 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lines, scored, refused = _scored(families(options.family), options.corpus, options.only, options.every_row)
    sums = summary(scored)
    count = sum(found.all.row_count for each in scored.values() for found in each)
    if count:
        print(sums)
        print(f"{count} shapes scored, {refused} in blocks that nothing predicts", file=sys.stderr)
    every = families("")
    unscored = "\n".join(refusals.lines(options.corpus, frozenset(file for one in every for file in one.files)))
    if unscored and not options.family:
        print(REFUSED + unscored)
    _leave_unread(told, options.corpus, options.only, is_scored=bool(count))
    if options.page:
        whole = HEAD + PUBLISHED + sums + COLUMNS + "\n".join(lines) + "\n" + REFUSED + unscored + "\n"
        write_page(PAGE, whole)


def _scored(
    chosen: Sequence[Family], corpus: Path, only: str, every_row: bool
) -> tuple[list[str], dict[str, list[Score]], int]:
    """Print one line per block, and return them, the scores by form, and the shapes of blocks that have none."""
    lines: list[str] = []
    scored: dict[str, list[Score]] = {}
    refused = 0
    for family in chosen:
        for block, line, found in _lines(family, corpus, only, every_row=every_row):
            print(line, flush=True)
            lines.append(line)
            scored.setdefault(family.model.name, []).extend([] if found is None else [found])
            refused += len(block.measured_s) if found is None else 0
    return lines, scored, refused


def _check(corpus: Path, chosen: Sequence[Family]) -> None:
    """Refuse a folder without rows in files of the corpus' names; name its other tables, which no family reads.

    Raises:
        SpecError: no such folder, no table that can be read, or no row in any.
    """
    known = {file for family in chosen for file in family.files}
    if not corpus.is_dir():
        raise SpecError(
            f"{corpus}: {'is no folder' if corpus.exists() else 'not found'}; give the folder of the tables"
        )
    tables = sorted(corpus.glob("*.parquet"))
    for path in tables:
        if path.stem not in known:
            print(f"{path.name}: not read", file=sys.stderr)
    names = ", ".join(f"{one}.parquet" for one in sorted(known))
    given = [path for path in tables if path.stem in known]
    if not given:
        raise SpecError(f"{corpus}: no table to score; it may hold {names}")
    counts = _row_counts(given)
    empty = [path.name for path, count in counts.items() if not count]
    if len(empty) == len(counts):
        raise SpecError(f"{corpus}: no row to score; {', '.join(empty)}: has no rows")
    if empty:
        print(f"{', '.join(empty)}: has no rows", file=sys.stderr)


def _row_counts(tables: Sequence[Path]) -> dict[Path, int]:
    """Return the rows of the tables that can be read; families name the others.

    Raises:
        SpecError: none can be read.
    """
    import duckdb

    counts: dict[Path, int] = {}
    for path in tables:
        try:
            counts[path] = duckdb.sql("select count(*) from read_parquet(?)", params=[str(path)]).fetchall()[0][0]
        except duckdb.Error as error:
            refusal = f"{path}: cannot be read: {str(error).splitlines()[0]}"
    if not counts:
        raise SpecError(refusal)
    return counts


def _leave(text: str, code: int) -> NoReturn:
    print(f"accuracy: {text}", file=sys.stderr)
    raise SystemExit(code)


def _leave_unread(told: Sequence[warnings.WarningMessage], corpus: Path, only: str, *, is_scored: bool) -> None:
    """Leave with what was not read, or where no row was scored; a page of the rest would pass for the whole."""
    for one in told:
        if not issubclass(one.category, UnreadTable):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    unread = sorted({str(one.message) for one in told if issubclass(one.category, UnreadTable)})
    if unread:
        _leave(f"{corpus}: not read: {'; '.join(unread)}", 1)
    if not is_scored:
        wanted = f" with {only!r} in its name" if only else ""
        _leave(f"{corpus}: no block{wanted} has a row to score; what was left out is said above, if any", 1)


def _lines(family: Family, corpus: Path, only: str, *, every_row: bool) -> Iterator[tuple[Block, str, Score | None]]:
    """Yield blocks with their row of the table and score; one that cannot be predicted says why, without a score."""
    for block in family.blocks(corpus):
        if only not in block.name or model_of(block.op, block.phase) is not family.model:
            continue  # products are fitted for what has no form of its own, but predicted by theirs
        try:
            rows = held_out(family, block, every_row=every_row)
        except NearpeakError as error:
            cells = f"| {family.name} | {block.name} | not scored: {error} | {len(block.measured_s)} |"
            yield block, cells + " |" * 8, None
            continue
        if rows is not None:
            found = score(rows)
            yield block, line_of(family.name, found, len(block.measured_s)), found
        elif len(block.measured_s):
            what = f"{len(block.measured_s)} shapes, none at a held-out site; --every-row scores them"
            print(f"{family.name}: {block.name}: {what}", file=sys.stderr)
        else:
            print(f"{family.name}: {block.name}: no row left ({_listed(block.left_out)})", file=sys.stderr)


def line_of(family: str, found: Score, shape_count: int) -> str:
    """Return one row of the table; shapes that are not scored stand with the reason."""
    cells = (
        family, found.name, found.protocol, f"{found.all.row_count}", shown(found.all), shown(found.long),
        f"{100 * found.plain_ratio:.1f}", f"{100 * found.roofline_ratio:.1f}", f"{100 * found.covered_ratio:.0f} %",
        f"{100 * found.half_width_ratio:.0f} %",
        f"{100 * found.decided_ratio:.1f} %", _left_out(found, shape_count),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _left_out(found: Score, shape_count: int) -> str:
    """Return how many rows of a block are not scored, by reason."""
    return _listed({"fitted or set intervals": shape_count - found.all.row_count, **found.left_out})


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count) or "0"


if __name__ == "__main__":
    main()
