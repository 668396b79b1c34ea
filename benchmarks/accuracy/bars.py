"""Holds what predictions reach against every bar, on one page: `python -m benchmarks.accuracy.bars CORPUS --page`."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.bars_table import BARS, FIGURES, Bar
from benchmarks.accuracy.evidence import Evidence
from benchmarks.accuracy.noise import noises
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.records import GROUP, SEEN, Record, figure, scored, written

PAGE = PAGES / "accuracy_bars.md"
HEAD = """# Which bars predictions reach

Written by `python -m benchmarks.accuracy.bars CORPUS --page`; nothing is fitted by it, and no figure is typed. Errors
on held-out sites, intervals, bounds and noise are computed from the corpus by the code of the other commands. Devices
left out, 30 designed cases, whole models and power take long: their figures are read from the pages that
`benchmarks.accuracy.unseen`, `.designed`, `.models` and `.power` wrote, which may be older.

A *block* is one source, device and format (and operator, where a family has several). *Met*: every block is within the
bar. *Mean met*: some blocks are not, their mean weighted by rows is. Where a bar allows for noise, a block's bar is 1.2
times the mean difference between versions of one software on its device and format, if that is more. *Worst*: the block
that lies farthest beyond its bar, or nearest to it. The command prints every block of every bar; below stand those that
miss.

"""
SUMMARY = "| what | bar | blocks met | mean over rows | worst block | |\n|---|---|---|---|---|---|\n"
MISSED = """
## What the missed bars miss, and what bounds them

All are mean errors unless they say otherwise. *Noise x 1.2*: see above. *Frameworks apart*: by how much the slower
frameworks exceed the best of them; where one alone ran, that much of its time is the choice of framework.
*Neighbours*: the error of the prediction times what it missed on the eight nearest fitted shapes: if that is not
nearer, the rest does not follow from shape. *Same solver*: neighbours with the solver that ran, which no prediction
can know. *Own fit*: error on held-out sites where the device itself was fitted: how near the form comes with all
scalars known. *Shortest constant*: half width over error of the shortest interval that holds 90 % of the very rows,
known afterwards and as wide for all. *Neighbours' readings*, *between software*: see the page of power. *Beaten, any*:
rows faster than the bound that admits Winograd's algorithm, FFT and every other bilinear one; [boards and
choices](accuracy_choices.md) tells which rows beat the classical bound by what. *All outputs charged*: bounds let
outputs stay in the last cache (assumption A5), the plain roofline writes them all to memory, so that it is no bound;
what is left below it with all outputs charged is the highest permitted clock against the documented rate (A7): *one
clock* holds the bound against the roofline at the least documented clock over the highest permitted one. *One factor*:
what is left once predictions of a board are multiplied by the one factor that suits it best, such as its true clock.
*Both sides above 128*: products with more rows and columns than that; the libraries of DeepBench (2016 and 2017) leave
most of a device idle on others, as they do not split k. *Fitted board, same source*: the error on that source's rows of
a board that was fitted on another one's: what the age of the library makes of a device that is known."""
INTERVALS = """
## Intervals of every family on every device

All held-out sites of a device together. *Half width*: median half width of the 90 % interval over the mean error, bar
2.00; *covered*: bar 85 to 95 %. *Shortest constant*: as above.

| family | device | rows | mean error | covered | half width | shortest constant |
|---|---|---|---|---|---|---|
"""
ELSEWHERE = """
## Bars that other benchmarks measure

Read from `docs/lab/figures`, with the machine and the date that each was taken on.

| bar | asked | reached | | machine | date |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One record against a bar."""

    record: Record
    """What was reached."""
    figure: float
    """The figure that counts."""
    most: float
    """Upper end, with what is allowed for noise."""
    is_met: bool
    """Whether the figure lies between the ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All records against a bar."""

    bar: Bar
    """The bar."""
    held: Sequence[Held]
    """Each record that it is of."""

    @property
    def mean(self) -> float:
        """Mean figure, weighted by rows."""
        return float(np.average([one.figure for one in self.held], weights=[one.record.row_count for one in self.held]))

    @property
    def worst(self) -> Held:
        """What lies farthest beyond its end."""
        return max(self.held, key=lambda one: max(one.figure - one.most, self.bar.least - one.figure))

    @property
    def word(self) -> str:
        """What to say of the bar."""
        if not self.held:
            return "no data"
        if not self.bar.is_mean and all(one.is_met for one in self.held):
            return "met"
        allowed = np.average([one.most for one in self.held], weights=[one.record.row_count for one in self.held])
        if not self.bar.least <= self.mean <= allowed:
            return "**missed**"
        return "met" if self.bar.is_mean else "mean met"


def main() -> None:
    """Print every block of every bar; optionally write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.bars", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_bars.md")
    options = parser.parse_args()
    records, evidence = _found(options.corpus)
    verdicts = [verdict(bar, records, evidence.allowed_ratio) for bar in BARS]
    for one in verdicts:
        print(summary_line(one), *(f"    {block_line(one.bar, held)}" for held in one.held), sep="\n", flush=True)
    if options.page:
        groups = [one for one in records if one.origin == GROUP]
        write_page(PAGE, page(verdicts, evidence, groups))


def _found(corpus: Path) -> tuple[list[Record], Evidence]:
    records, blocks = list(written()), {}
    for record, _, block in scored(corpus):
        records.append(record)
        if block is not None:
            blocks[block.name] = block
    return records, Evidence(
        corpus=corpus, noises={(one.file, one.device, one.dtype): one for one in noises(corpus)}, blocks=blocks,
        own={(one.family, one.name): one.values["mean"] for one in records if one.origin == "sites"},
        seen={(one.family, one.name): one.values["mean"] for one in records if one.origin == SEEN},
    )  # fmt: skip


def verdict(bar: Bar, records: Sequence[Record], allowed_ratio: Callable[[str], float]) -> Verdict:
    """Return what the records that a bar is of reach.

    Args:
        allowed_ratio: what noise alone makes of the error of a block, by its name.
    """
    held = []
    for record in records:
        if bar.is_of(record):
            reached = record.values[bar.value]
            most = max(bar.most, allowed_ratio(record.name)) if bar.allows_noise else bar.most
            held.append(Held(record=record, figure=reached, most=most, is_met=bar.least <= reached <= most))
    return Verdict(bar=bar, held=held)


def page(verdicts: Sequence[Verdict], evidence: Evidence, groups: Sequence[Record] = ()) -> str:
    """Return the page.

    Args:
        groups: records by family and device, whose intervals are listed, met or not.
    """
    lines = [
        HEAD + SUMMARY.rstrip("\n"),
        *map(summary_line, verdicts),
        ELSEWHERE.rstrip("\n"),
        *_elsewhere(),
        MISSED,
    ]
    for one in verdicts:
        missed = [held for held in one.held if not held.is_met]
        if missed and one.word != "met":
            lines += [
                f"### {one.bar.text}: missed by {len(missed)} of {len(one.held)}",
                "",
                *_block_table(one, evidence),
            ]
            lines += [""]
    return "\n".join([*lines, INTERVALS.rstrip("\n"), *map(_interval_line, groups)]) + "\n"


def _interval_line(one: Record) -> str:
    """Return the interval of one family on one device."""
    mean, covered = (f"{100 * one.values[name]:.1f} %" for name in ("mean", "covered"))
    width, least = (f"{one.values[name]:.2f}" for name in ("width", "least_width"))
    cells = (one.family, one.name, str(one.row_count), mean, covered, width, least)
    return f"| {' | '.join(cells)} |"


def summary_line(one: Verdict) -> str:
    """Return one row of the first table."""
    ends = _ends(one.bar, one.bar.most) + (" or noise" if one.bar.allows_noise else "")
    if not one.held:
        return f"| {one.bar.text} | {ends} | – | – | – | {one.word} |"
    met, worst = sum(held.is_met for held in one.held), one.worst
    noisy = f", bar {_shown(one.bar, worst.most)}" if worst.most > one.bar.most else ""
    cells = (
        one.bar.text, ends, f"{met} of {len(one.held)}", _shown(one.bar, one.mean),
        f"{_shown(one.bar, worst.figure)} ({worst.record.name}{noisy})", one.word,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def block_line(bar: Bar, held: Held) -> str:
    """Return one block in words."""
    met = "met" if held.is_met else "missed"
    reached, most = _shown(bar, held.figure), _shown(bar, held.most)
    return f"{held.record.family} {held.record.name}, {held.record.row_count} rows: {reached}, at most {most}: {met}"


def _block_table(one: Verdict, evidence: Evidence) -> Iterator[str]:
    """Yield the table of the blocks that miss a bar, with what bounds them."""
    missed = sorted((held for held in one.held if not held.is_met), key=lambda held: -held.record.row_count)
    every = [evidence.cells(held.record, one.bar.value) for held in missed]
    heads = list(dict.fromkeys(head for cells in every for head in cells))
    yield f"| {' | '.join(['family', 'block', 'rows', 'reached', 'bar', *heads])} |"
    yield "|---" * (5 + len(heads)) + "|"
    for held, cells in zip(missed, every, strict=True):
        reached = _shown(one.bar, held.figure), _ends(one.bar, held.most)
        known = [cells.get(head, "–") for head in heads]
        yield f"| {' | '.join([held.record.family, held.record.name, str(held.record.row_count), *reached, *known])} |"


def _elsewhere() -> Iterator[str]:
    for text, name in FIGURES.items():
        found = figure(name)
        if not found:
            yield f"| {text} | – | not measured | | | |"
            continue
        word, value = "met" if found["passed"] else "**missed**", float(str(found["value"]))
        reached = f"{value:.4g} {found['unit']}"
        yield f"| {text} | {found['bar']} | {reached} | {word} | {found['machine']} | {found['date']} |"


def _ends(bar: Bar, most: float) -> str:
    return _shown(bar, most) if bar.least == -np.inf else f"{_shown(bar, bar.least)} to {_shown(bar, most)}"


def _shown(bar: Bar, value: float) -> str:
    digits = 2 if bar.most < 0.01 else 1  # small shares need a second digit
    return f"{100 * value:.{digits}f} %" if bar.is_percent else f"{value:.2f}"


if __name__ == "__main__":
    main()
