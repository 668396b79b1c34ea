"""Measures how far sources are apart: `python -m benchmarks.accuracy.spread CORPUS` writes what intervals add for it.

Blocks count that no scalar behind their prediction was fitted on and that others measured, each as much as any other;
for what another format adds, those that were fitted, predicted by scalars of their device in each other format.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, Family, folds
from benchmarks.accuracy.kin import left_out_boards
from benchmarks.accuracy.ranks import missed_by_device
from nearpeak.prediction.calibration.coefficient_file import group_text, groups_of
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.related_devices import is_other_format
from nearpeak.prediction.calibration.source_spread import (
    FILE,
    OLDER_LIBRARIES,
    OTHER_CHIP,
    OTHER_FORMAT,
    OTHER_MAKER,
    OTHER_SOURCE,
    RANKS,
    other_maker_spread,
    spread_of,
)
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.model_choice import model_of
from nearpeak.targets import target_of

COEFFICIENTS = FILE.parent
READ = (0, 1, 2)
"""Folds of sites that are read; the last is scored alone."""
TAIL_RATIO = 0.05
"""Share of the rows that either end may miss."""
HEAD = """# Logarithms by which measurements are faster and slower for being of another source than the scalars, added
# in squares to the interval. Written by `python -m benchmarks.accuracy.spread CORPUS`; under a source's name stands
# what all others show, under other_format_… what scalars of another format of the same device add, under ranks_…
# by how much the most ranks measured are faster and slower than scalars fitted on half of them say, under twins…
# and cousins… what scalars of another board of the architecture add, with the same multiprocessors or others; under
# older_libraries what products of DeepBench (libraries of 2016 to 2019) add to scalars of libraries of 2023 and later
# on boards of the same architectures; under other_maker… what rows of AMD's boards add to what NVIDIA's tell of them.
"""
_FIRST_MAKER, _MAKER_STEPS = "NVIDIA", 3
"""Maker whose boards tell of those of makers without measurements, and the steps that these are away."""
_OLDER_SOURCE = "deepbench"
"""Project that timed products by the libraries of its boards' age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """By how much rows of one block leave their interval, in logarithms, as squares are subtracted; 0 inside."""

    source: str
    """Project that measured."""
    faster: Any
    """Below the low end."""
    slower: Any
    """Above the high end."""


def main() -> None:
    """Write the spread of all sources, and of all but each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.spread", description=__doc__)
    parser.add_argument("corpus", type=Path)
    blocks = [
        (family, block)
        for family in families("")
        for block in family.blocks(parser.parse_args().corpus)
        if model_of(block.op, block.phase) is family.model and len(block.measured_s)
    ]
    found = [_excess(family, block) for family, block in blocks if is_elsewhere(family, block)]
    formats: dict[str, list[Excess]] = {}
    for family, block in blocks:
        if family.is_allowed(block):
            formats.setdefault(family.model.name, []).extend(_other_formats(family, block))
    lines = [
        _lines(OTHER_SOURCE, found),
        *(_lines(OTHER_FORMAT + name, each) for name, each in formats.items() if each),
    ]
    lines += list(_rank_lines([block for family, block in blocks if family.model.name == "collective"]))
    lines += list(_kin_lines(blocks))
    lines += [_older_lines(blocks), *_maker_lines(blocks)]
    for source in sorted({one.source for one in found}):
        lines.append(_lines(source, [one for one in found if one.source != source]))
    FILE.write_text(HEAD + "\n".join(lines), encoding="utf-8")


def is_elsewhere(family: Family, block: Block) -> bool:
    """Return whether another source measured a block than the scalars that answer for it, or other operations."""
    if family.is_allowed(block):
        return False
    if block.kind.split()[0] in family.scored:
        return True
    starts = [start.split() for start in family.allowed]
    alike = [one for one in starts if one[0] == block.source and (len(one) < 3 or block.kind.startswith(one[2]))]
    if not alike:
        return True
    rows = np.arange(1)
    used = calibration_for(target_of(block.device), family.model, block.columns(rows))
    return f"/{block.source} " not in used.source.lower()


def _other_formats(family: Family, block: Block) -> Iterator[Excess]:
    """Yield how far rows are from scalars of each other format of their device that would serve without its own.

    They stand under the name of the own format, which else would answer from the file that ships.
    """
    model = family.model
    groups = model.groups(block.op, block.dtypes)
    stored = groups_of(COEFFICIENTS / model.name / f"{block.device}.toml")
    names = [coefficient.name for coefficient in model.coefficients]
    for group in groups:
        name = f"{model.name}.{group}"
        if model.is_by_format and is_other_format(groups[0], group) and name in stored:
            with TemporaryDirectory() as folder:
                alone, known = Path(folder) / f"{block.device}.toml", stored[name]["scalars"]
                values = map(float, model.reformatted(group, [known[one] for one in names]))
                entry = {**stored[name], "scalars": dict(zip(names, values, strict=True))}
                alone.write_text(group_text(f"{model.name}.{groups[0]}", entry), encoding="utf-8")
                yield _excess(family, block, alone, is_corrected=False)


def _excess(family: Family, block: Block, file: Path | None = None, *, is_corrected: bool = True) -> Excess:
    """Return by how much rows of a block leave their interval.

    Args:
        file: scalars to use in place of those that answer.
    """
    rows = np.flatnonzero(np.isin(folds(block), READ))
    expected_s, low_s, high_s = block.predicted_s(rows, file, is_corrected=is_corrected)
    ratio, low, high = (np.log(each / expected_s) for each in (block.measured_s[rows], low_s, high_s))
    print(f"{family.name} {block.name}: {((low <= ratio) & (ratio <= high)).mean():.2f} of {len(rows)}", flush=True)
    return _beyond_ends(block.source, ratio, low, high)


def _beyond_ends(source: str, ratio: Any, low: Any, high: Any) -> Excess:
    """Return by how much ratios leave an interval, all as logarithms."""
    return Excess(
        source=source,
        faster=np.where(ratio < 0, np.sqrt(np.maximum(ratio**2 - low**2, 0)), 0.0),
        slower=np.where(ratio > 0, np.sqrt(np.maximum(ratio**2 - high**2, 0)), 0.0),
    )


def _kin_lines(blocks: Sequence[tuple[Family, Block]]) -> Iterator[str]:
    """Yield by how much boards miss the scalars of another one of their architecture, by form; cousins all together."""
    found: dict[str, list[Excess]] = {}
    for one in left_out_boards(blocks):
        print(f"{one.kind} {one.model} {one.name}: {one.covered_ratio:.2f} of {len(one.ratio)}", flush=True)
        excess = _beyond_ends(one.name.split()[0], one.ratio, one.low, one.high)
        for name in (f"{one.kind}_{one.model}", *([OTHER_CHIP] if one.kind == OTHER_CHIP else [])):
            found.setdefault(name, []).append(excess)
    yield from (_lines(name, each) for name, each in sorted(found.items()))


def _older_lines(blocks: Sequence[tuple[Family, Block]]) -> str:
    """Return by how much products of older libraries miss scalars of newer ones, of boards of the architecture."""
    older = [
        _excess(family, block)
        for family, block in blocks
        if family.model.name == "gemm"
        and block.source == _OLDER_SOURCE
        and calibration_for(target_of(block.device), family.model, block.columns(np.arange(1))).distance_count <= 1
    ]
    return _lines(OLDER_LIBRARIES, older)


def _maker_lines(blocks: Sequence[tuple[Family, Block]]) -> Iterator[str]:
    """Yield by how much boards miss scalars of another maker's, by form, and of all forms together."""
    found: dict[str, list[Excess]] = {OTHER_MAKER: []}
    for family, block in blocks:
        target = target_of(block.device)
        if target.vendor == _FIRST_MAKER or block.kernels or len(block.measured_s) < family.least_rows_count:
            continue
        rows = np.flatnonzero(np.isin(folds(block), READ))
        foreign = replace(target, vendor="", architecture="", name=f"{target.name} of an unknown maker")
        times = predict_table(block.table(rows), foreign, block.setting_of(rows))
        if times.distance_count.max() < _MAKER_STEPS:
            continue
        ratio, *ends = (
            np.log(each / times.predicted_s) for each in (block.measured_s[rows], times.low_s, times.high_s)
        )
        known = spread_of(other_maker_spread(family.model.name))
        low, high = (np.sqrt(np.maximum(end**2 - more**2, 0.0)) for end, more in zip(ends, known, strict=True))
        excess = _beyond_ends(block.source, ratio, -low, high)
        for name in (OTHER_MAKER, f"{OTHER_MAKER}_{family.model.name}"):
            found.setdefault(name, []).append(excess)
    yield from (_lines(name, each) for name, each in sorted(found.items()) if each)


def _rank_lines(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield by how much collectives miss that were fitted on half of their ranks, by how boards meet."""
    (family,) = families("collective")
    found: dict[str, list[Excess]] = {}
    for kind, missed in missed_by_device(family, blocks):
        one = Excess(source="", faster=np.maximum(-missed, 0.0), slower=np.maximum(missed, 0.0))
        found.setdefault(kind, []).append(one)
    yield from (_lines(RANKS + kind, each) for kind, each in sorted(found.items()))


def _lines(name: str, blocks: Sequence[Excess]) -> str:
    weights = np.concatenate([np.full(len(one.faster), 1 / len(one.faster)) for one in blocks if len(one.faster)])
    ends = {
        end: _beyond(np.concatenate([getattr(one, end) for one in blocks]), weights) for end in ("faster", "slower")
    }
    return f"[spread.{name}]\n" + "".join(f"{end} = {value:.3f}\n" for end, value in ends.items())


def _beyond(excess: Any, weights: Any) -> float:
    """Return what at most TAIL_RATIO of the weight exceeds.

    >>> _beyond(np.arange(100.0), np.ones(100))
    94.0
    """
    order = np.argsort(excess, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    return float(excess[order][min(np.searchsorted(below, 1 - TAIL_RATIO), len(excess) - 1)])


if __name__ == "__main__":
    main()
