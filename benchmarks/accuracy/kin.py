"""How far boards are from scalars of another board of their architecture: each is left out in turn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.accuracy.family import Block, Family, folds
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.source_spread import chip_relation, relation_spread, spread_of
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import target_of

READ = (0, 1, 2)
"""Folds of sites that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Rows of a board that scalars of another one of its architecture predict."""

    kind: str
    """How alike the boards are: `twins` or `cousins`."""
    model: str
    """Family of operators."""
    name: str
    """Block."""
    ratio: Any
    """Logarithms of measured over predicted times."""
    low: Any
    """Low ends of the interval without what boards add, as logarithms."""
    high: Any
    """High ends likewise."""
    covered_ratio: float
    """Share of the rows inside the interval as it ships."""


def left_out_boards(blocks: Sequence[tuple[Family, Block]]) -> Iterator[LeftOut]:
    """Yield each fitted block whose board has kin that were fitted, too."""
    for family, block in blocks:
        if family.is_allowed(block):
            yield from _left_out(family, block)


def _left_out(family: Family, block: Block) -> Iterator[LeftOut]:
    rows, target = np.flatnonzero(np.isin(folds(block), READ)), target_of(block.device)
    used = calibration_for(target, family.model, block.columns(rows[:1]), without=block.device)
    if used.distance_count != 1 or used.name.startswith("_"):
        return
    other = target_of(used.name.partition(" ")[0].replace("@", ":"))
    found = predict_table(block.table(rows), target, replace(block.setting_of(rows), excluded_device=block.device))
    ratio, low, high = (
        np.log(each / found.predicted_s) for each in (block.measured_s[rows], found.low_s, found.high_s)
    )
    known = spread_of(name) if (name := relation_spread(family.model.name, target, other)) else (0.0, 0.0)
    own = [np.sqrt(np.maximum(end**2 - more**2, 0.0)) for end, more in zip((low, high), known, strict=True)]
    yield LeftOut(
        kind=chip_relation(target, other), model=family.model.name, name=block.name, ratio=ratio, low=-own[0],
        high=own[1],
        covered_ratio=float(((low <= ratio) & (ratio <= high)).mean()) if math.isfinite(ratio.sum()) else 0.0,
    )  # fmt: skip
