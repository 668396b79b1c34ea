"""Differences between measurement sources: other software and other timing methods widen intervals."""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.prediction.kernel_model import CaseColumns

FILE = Path(__file__).parents[1] / "coefficients/spread.toml"
OTHER_SOURCE = "elsewhere"
"""Name of measurements from an unknown source, such as a user's own."""
OTHER_FORMAT = "other_format_"
"""Prefix of entries, by model, for another format than the one behind the coefficients."""
RANKS = "ranks_"
"""Prefix of entries, by interconnect, for each doubling of the ranks beyond those measured."""
SAME_CHIP, OTHER_CHIP = "twins", "cousins"
"""Prefixes of entries, by model, for coefficients of another board of the architecture: same or other chip."""
OLDER_LIBRARIES = "older_libraries"
"""Entry for boards older than all those behind their coefficients, whose times are of libraries of their own age."""
OTHER_MAKER = "other_maker"
"""Prefix of entries, by model, for boards of a maker that the coefficients know nothing of; alone: of all models."""
_YEARS = {
    "maxwell": 2014, "pascal": 2016, "volta": 2017, "turing": 2018, "ampere": 2020, "ada": 2022, "hopper": 2022,
    "blackwell": 2024, "blackwell ultra": 2025, "gcn5": 2017, "gcn5.1": 2018, "cdna": 2020, "rdna2": 2020,
    "cdna2": 2021, "cdna3": 2023, "cdna4": 2025,
}  # fmt: skip
"""Years in which makers announced their architectures (their whitepapers)."""
_VERSIONS = {"attention": 0.15, "grouped_gemm": 0.10, "collective": 0.05}
"""Additional spread of same-chip boards as logarithms, by model: their tables come from other framework versions.

Intervals widened by half hold 92 % of products of superseded versions on the A100, H100 and L40S, but 79 % of attention
(median block) and 88 % of grouped products; with these, 90 % of each (docs/lab/kernel_models.md). Of published
all-reduces, 90 % of the sizes differ by 3.8 % at most between H100 and H200, by 5.5 % between B200 and GB200.
"""
WIDEST = 32.0
"""Largest factor of an interval's ends either way: without measurements a prediction may be that far off, an
assumption; further ends would say nothing more."""
LEAST_SIDE = 0.5
"""Least share of the nearer end of the farther one, in logarithms, where the device has no data: an assumption."""
_PAIR = 2
"""Boards behind coefficients for which leave-one-out shows too little."""
_LANES = "vector.fp32"
"""Unit whose FLOP per clock tell multiprocessors of an architecture apart: those of its data-centre chip have half."""


def chip_relation(target: Target, device: Target) -> str:
    """Return whether boards of an architecture have the same multiprocessors.

    >>> from nearpeak.targets import target_of
    >>> a100 = target_of("a100_sxm_80gb")
    >>> [chip_relation(target_of(name), a100) for name in ("a100_pcie_40gb", "rtx_a6000")]
    ['twins', 'cousins']
    """
    lanes = [board.peaks[_LANES].flop_per_clock for board in (target, device) if _LANES in board.peaks]
    return SAME_CHIP if len(set(lanes)) <= 1 else OTHER_CHIP


def relation_spread(model: str, target: Target, device: Target) -> str:
    """Return the entry for coefficients of `device` on another board: of this model, of all models, or none."""
    kind = chip_relation(target, device)
    return next((name for name in (f"{kind}_{model}", kind) if name in _spreads()), "")


def with_other_board_spread(calibration: Calibration, model: str, target: Target, device: Target) -> Calibration:
    """Return coefficients of `device` with the spread of other boards of its architecture."""
    name = relation_spread(model, target, device)
    if name:
        return with_source_spread(calibration, name)
    more = _VERSIONS.get(model, 0.0)
    return _with_spread(calibration, (more, more)) if more else calibration


def with_few_boards_spread(calibration: Calibration, model: str) -> Calibration:
    """Return coefficients of several boards, with the spread of other chips where one or two boards are behind them.

    Leave-one-out of two boards shows one distance between boards, not the spread of distances; one board shows none,
    so that the spread over all models stands in.
    """
    count = len(calibration.source.rpartition("; ")[2].split(", "))
    if count > _PAIR:
        return calibration
    return (
        with_other_kernels_spread(calibration, model) if count == _PAIR else with_source_spread(calibration, OTHER_CHIP)
    )


def with_older_libraries_spread(calibration: Calibration, target: Target, behind: Sequence[Target]) -> Calibration:
    """Return coefficients with the spread of older libraries where a target is older than all boards behind them.

    Libraries of 2016 do not split k, so that products of few rows or columns leave most of a device idle; libraries
    that still run on the oldest measured boards do. What that makes is known from boards that both were timed on.

    Args:
        behind: boards that the coefficients were fitted on.
    """
    year = _YEARS.get(target.architecture, math.inf)
    is_older = all(year < _YEARS.get(device.architecture, -math.inf) for device in behind) and bool(behind)
    return with_source_spread(calibration, OLDER_LIBRARIES) if is_older else calibration


def other_maker_spread(model: str) -> str:
    """Return the entry for a board of a maker without measurements in a model."""
    return name if (name := f"{OTHER_MAKER}_{model}") in _spreads() else OTHER_MAKER


def with_other_kernels_spread(calibration: Calibration, model: str) -> Calibration:
    """Return coefficients of several boards with the spread of other chips, as few of them run the same kernels."""
    return with_source_spread(
        calibration, f"{OTHER_CHIP}_{model}" if f"{OTHER_CHIP}_{model}" in _spreads() else OTHER_CHIP
    )


def with_source_spread(calibration: Calibration, measured_by: str) -> Calibration:
    """Return coefficients with the interval of measurements by another than the one they were fitted to.

    Both deviate independently: ends, as logarithms, add in squares. The spread was measured over all sources; for
    one of these sources it is that of the others, so that no rows set the interval that they are judged by.

    Args:
        measured_by: a source of `spread.toml`, or any other name for an unknown source.
    """
    return _with_spread(calibration, spread_of(measured_by))


_RATE = ("tensor_ratio", "clock_ratio")
"""Coefficients of the rate that long products sustain, and its loss."""


def rate_move(before: Calibration, after: Calibration) -> float:
    """Return the logarithm by which a transfer changed the sustained product rate; 0 for models without one."""

    def sustained(calibration: Calibration) -> float:
        known = {coefficient.name: coefficient.value for coefficient in calibration.coefficients}
        tensor, clock = (known.get(name, 0.0) for name in _RATE)
        return tensor / (1 + clock)

    return math.log(sustained(after) / sustained(before)) if sustained(before) > 0 else 0.0


def with_half_move(calibration: Calibration, moved: float) -> Calibration:
    """Return coefficients with half of the rate's move as additional spread: an assumption.

    Voltages and idle power are not documented, so that the move itself is that uncertain.
    """
    return _with_spread(calibration, (abs(moved) / 2,) * 2) if moved else calibration


def widened_by(calibration: Calibration, power: Callable[[str], float]) -> Calibration:
    """Return coefficients with the interval of an operator that they were not measured on, WIDEST at most.

    Args:
        power: factor of the logarithms of a cell's ends.
    """
    is_narrow = max(calibration.high_ratio.values()) <= WIDEST and min(calibration.low_ratio.values()) >= 1 / WIDEST
    if is_narrow and all(power(name) == 1.0 for name in calibration.low_ratio):
        return calibration
    low = {name: max(ratio ** power(name), 1 / WIDEST) for name, ratio in calibration.low_ratio.items()}
    high = {name: min(ratio ** power(name), WIDEST) for name, ratio in calibration.high_ratio.items()}
    return replace(calibration, low_ratio=low, high_ratio=high)


def widened_both_ways(calibration: Calibration) -> Calibration:
    """Return coefficients for a device without data, whose intervals reach far to both sides.

    All measured devices may be off to one side, which does not tell the side of another device.
    """
    low, high = dict(calibration.low_ratio), dict(calibration.high_ratio)
    for name, ratio in calibration.low_ratio.items():
        reach = max(ratio, 1 / ratio, high[name]) ** LEAST_SIDE
        low[name], high[name] = min(ratio, 1 / reach), max(high[name], reach)
    return replace(calibration, low_ratio=low, high_ratio=high)


def _with_spread(calibration: Calibration, more: tuple[float, float]) -> Calibration:
    """Return coefficients with additional spread, faster and slower as logarithms, added in squares."""
    pairs = zip(calibration.apart_ratio, more, strict=True)
    faster, slower = (math.exp(math.hypot(math.log(known), extra)) for known, extra in pairs)
    return replace(calibration, apart_ratio=(faster, slower))


def spread_of(measured_by: str = OTHER_SOURCE) -> tuple[float, float]:
    """Return by how much, in logarithms, measurements of another source may be faster and slower.

    >>> all(0.1 < end < 1.0 for end in spread_of())
    True
    """
    known = _spreads()
    spread = known.get(measured_by, known[OTHER_SOURCE])
    return spread["faster"], spread["slower"]


def gradient_spread(cases: CaseColumns) -> tuple[Any, Any] | None:
    """Return the additional spread of gradients, as columns, where only forward passes were measured; else none."""
    if cases.phase == "forward":
        return None
    count = np.broadcast_shapes((1,), *(np.shape(column) for column in cases.axes.values()))
    faster, slower = spread_of()
    return np.full(count, faster), np.full(count, slower)


@lru_cache
def _spreads() -> Mapping[str, Mapping[str, float]]:
    entries: Mapping[str, Mapping[str, float]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["spread"]
    return entries
