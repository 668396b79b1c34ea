"""Case-dependent interval widths: trees over shape, time and parts that scale a group's interval."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.answers.prediction import Correction
from nearpeak.prediction.residual_correction import fit_correction

TREE_COUNT = 24
"""Trees of a scale."""
LEAST_COUNT = 200
"""Rows from which a scale is fitted: fewer would not show which of them are unsure."""
LEAST_SITES = 30
"""Sites from which a scale is fitted: trees tell the rows of a few sites apart by the sites, which others do not share.
"""
POWER = 12.5
"""Divisor of a scale's logarithm in the trees, whose range is 25 % around 1; scales reach 16 so."""
PARTS = 4
"""Parts of the sites, each of which gets its scales from trees that the others were fitted to."""
LEAST_LOG = 0.003
"""Logarithm that deviations are raised by, so that rows that were hit by chance do not count as sure for that."""
Columns = Mapping[str, Any]
"""What trees look at by name, one value a row each."""
_SEED = 20261123


def fit_scale(
    columns: Columns, rest: Any, sites: Any, more: tuple[Columns, Any] | None = None
) -> tuple[Correction, Any]:
    """Return the trees that tell how far rows deviate, and the scale of each row by trees that did not see its site.

    Ends of intervals are set on these second scales, so that they hold for sites that no tree has seen.

    Source: normalised conformal prediction, Papadopoulos et al. 2011, doi:10.1613/jair.3198.

    Args:
        columns: what the trees may look at, one value a row each.
        rest: logarithm of measured over predicted time of each row.
        sites: number of the site of each row.
        more: the first two of rows of other sites that trees are fitted to as well, though the prediction has seen
            them: which of them deviate more is known, not by how much all of them would unseen.
    """
    wanted = _wanted(rest)
    known, others = ({}, np.empty(0)) if more is None else (more[0], _wanted(more[1]))
    each, place = np.unique(sites, return_inverse=True)
    part = (np.random.default_rng(_SEED).permutation(len(each)) % PARTS)[place]
    scales = np.ones(len(rest))

    def fitted(rows: Any) -> Correction:
        joined = {name: np.append(column[rows], known.get(name, [])) for name, column in columns.items()}
        return fit_correction(joined, np.append(wanted[rows], others), TREE_COUNT)

    for fold in range(PARTS):
        held_out = part == fold
        scales[held_out] = walked(fitted(~held_out), {name: column[held_out] for name, column in columns.items()})
    return fitted(np.ones(len(rest), dtype=bool)), scales


def _wanted(rest: Any) -> Any:
    """Return the target of the trees: the deviation of each row relative to the median one."""
    size = np.log(np.abs(rest) + LEAST_LOG)
    return (size - np.median(size)) / POWER


def walked(trees: Correction, columns: Columns) -> Any:
    """Return the scale of each row by its columns."""
    from nearpeak.prediction import correction_kernel as kernel

    count = len(next(iter(columns.values())))
    values = np.zeros((len(trees.columns), count), dtype=np.float32)
    for place, name in enumerate(trees.columns):
        values[place] = columns[name]
    return kernel.ratio(trees, trees.columns, values, POWER)
