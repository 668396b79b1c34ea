"""What is kept beside samples so that histories read no blob; all of it can be computed from them again."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.estimate import median_ranks

Floats = npt.NDArray[np.float64]


def summaries(rows: npt.NDArray[Any]) -> dict[str, Floats]:
    """Return the summaries of each row of samples.

    Shapes: rows [sets, samples], at least one sample; results [sets].

    Quantiles lie between neighbours by proportion; `low` and `high` are the ends of the median's 95 % interval by
    ranks. All are order statistics, so that a set has the same summaries, to the bit, whatever stands beside it.

    >>> {name: float(found[0]) for name, found in summaries(np.array([[3.0, 1.0, 2.0]])).items()}["median"]
    2.0
    """
    ordered = np.sort(rows.astype(np.float64), axis=1)
    count = ordered.shape[1]
    low, high = median_ranks(count)
    return {
        "median": _quantile(ordered, 0.5), "q1": _quantile(ordered, 0.25), "q3": _quantile(ordered, 0.75),
        "low": ordered[:, low], "high": ordered[:, high], "least": ordered[:, 0],
    }  # fmt: skip


def _quantile(ordered: Floats, share_ratio: float) -> Floats:
    place = share_ratio * (ordered.shape[1] - 1)
    below = math.floor(place)
    above = min(below + 1, ordered.shape[1] - 1)
    found: Floats = ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
    return found
