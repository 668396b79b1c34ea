"""How far measurements of one source are from scalars fitted to another's: other software, other ways of timing."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target

FILE = Path(__file__).parents[1] / "coefficients/spread.toml"
ELSEWHERE = "elsewhere"
"""Name of measurements by nobody whose measurements are known, such as a user's own."""
OTHER_FORMAT = "other_format_"
"""Begin of the names, by form, of measurements of another format than the one behind the scalars."""

RANKS = "ranks_"
"""Begin of the names, by how devices meet, of what a doubling of the ranks adds beyond those measured."""


TWINS, COUSINS = "twins", "cousins"
"""Begin of the names, by form, of what scalars of another board of the architecture add: with the same multiprocessors,
with others.
"""
_VERSIONS = {"attention": 0.15, "grouped_gemm": 0.10, "collective": 0.05}
"""Logarithms by which twins are less sure, by form, as tables of another board are of other versions of the frameworks.

Intervals widened by half hold 92 % of products of superseded versions on the A100, H100 and L40S, but 79 % of attention
(median block) and 88 % of grouped products; with these, 90 % of each (docs/lab/kernel_models.md). Of published
all-reduces, 90 % of the sizes differ by 3.8 % at most between H100 and H200, by 5.5 % between B200 and GB200.
"""
_PAIR = 2
"""Boards behind scalars of which leaving each out tells too little."""
_LANES = "vector.fp32"
"""Unit whose FLOP per clock tell multiprocessors of an architecture apart: those of its data-centre chip have half."""


def kin_of(target: Target, device: Target) -> str:
    """Return whether boards of an architecture have the same multiprocessors.

    >>> from nearpeak.targets import target_of
    >>> a100 = target_of("a100_sxm_80gb")
    >>> [kin_of(target_of(name), a100) for name in ("a100_pcie_40gb", "rtx_a6000")]
    ['twins', 'cousins']
    """
    lanes = [one.peaks[_LANES].flop_per_clock for one in (target, device) if _LANES in one.peaks]
    return TWINS if len(set(lanes)) <= 1 else COUSINS


def kin_spread(form: str, target: Target, device: Target) -> str:
    """Return the name of what scalars of `device` add for another board; that of all forms where it is not known.

    Of twins nothing is known in general: they are then as sure as FAR_RATIO says.
    """
    kind = kin_of(target, device)
    return next((name for name in (f"{kind}_{form}", kind) if name in _spreads()), "")


def of_other_board(found: Calibration, form: str, target: Target, device: Target) -> Calibration:
    """Return scalars of `device` as sure as they are of another board of its architecture."""
    name = kin_spread(form, target, device)
    if name:
        return seen_elsewhere(found, name)
    more = _VERSIONS.get(form, 0.0)
    return _apart_by(found, (more, more)) if more else found


def of_few_boards(found: Calibration, form: str) -> Calibration:
    """Return the scalars of several boards together, less sure by what cousins differ where they are of one or two.

    Either of two, left out, is held against the other alone: one distance between boards, not how distances spread. One
    shows none, so that cousins of all forms stand for it.
    """
    count = len(found.source.rpartition("; ")[2].split(", "))
    if count > _PAIR:
        return found
    return of_other_kernels(found, form) if count == _PAIR else seen_elsewhere(found, COUSINS)


def of_other_kernels(found: Calibration, form: str) -> Calibration:
    """Return scalars of several boards, less sure by what cousins differ: few tell of the board asked for."""
    return seen_elsewhere(found, f"{COUSINS}_{form}" if f"{COUSINS}_{form}" in _spreads() else COUSINS)


def seen_elsewhere(found: Calibration, measured_by: str) -> Calibration:
    """Return scalars with the interval of measurements by another than the one they were fitted to.

    Both deviate independently: ends, as logarithms, add in squares. The spread was measured over all sources; that of
    a source that took part is the one of the others, so that nobody's rows set the interval that they are judged by.

    Args:
        measured_by: a source of `spread.toml`, or anything else for one that is not there.
    """
    return _apart_by(found, spread_of(measured_by))


_RATE = ("tensor_ratio", "clock_ratio")
"""Scalars of the rate that long products sustain, and its loss."""


def rate_moved(before: Calibration, after: Calibration) -> float:
    """Return the logarithm by which documents have moved the sustained rate of scalars; 0 of forms without one."""

    def sustained(found: Calibration) -> float:
        known = {one.name: one.value for one in found.coefficients}
        tensor, clock = (known.get(name, 0.0) for name in _RATE)
        return tensor / (1 + clock)

    return math.log(sustained(after) / sustained(before)) if sustained(before) > 0 else 0.0


def by_half_of(found: Calibration, moved: float) -> Calibration:
    """Return scalars less sure by half of what documents moved their rate by, either way: an assumption.

    Voltages and what boards draw at rest are not documented, so that the move is no surer than that.
    """
    return _apart_by(found, (abs(moved) / 2,) * 2) if moved else found


def _apart_by(found: Calibration, more: tuple[float, float]) -> Calibration:
    """Return scalars with ends of the interval farther out by logarithms, added in squares."""
    pairs = zip(found.apart_ratio, more, strict=True)
    faster, slower = (math.exp(math.hypot(math.log(known), one)) for known, one in pairs)
    return replace(found, apart_ratio=(faster, slower))


def spread_of(measured_by: str = ELSEWHERE) -> tuple[float, float]:
    """Return by how much, in logarithms, measurements may be faster and slower for being somebody else's.

    >>> all(0.1 < end < 1.0 for end in spread_of())
    True
    """
    known = _spreads()
    found = known.get(measured_by, known[ELSEWHERE])
    return found["faster"], found["slower"]


@lru_cache
def _spreads() -> Mapping[str, Mapping[str, float]]:
    found: Mapping[str, Mapping[str, float]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["spread"]
    return found
