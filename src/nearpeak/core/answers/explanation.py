"""The difference of two predicted times, part by part, with the device figures that differ."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Two predictions side by side: two cases, two targets, or both."""

    cases: tuple[Case, Case]
    """First and second case; the same one twice where only the targets differ."""
    targets: tuple[Target, Target]
    """First and second target."""
    predictions: tuple[Prediction, Prediction]
    """The predicted time of each case on its target."""
    parts_s: Mapping[str, tuple[float, float]]
    """Time of every part in both predictions, the largest difference first; each side adds up to its prediction."""
    figures: Mapping[str, tuple[float, float, str]]
    """Device figures that differ: first, second, unit."""
