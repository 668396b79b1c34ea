"""How far collectives are from scalars that have seen half of their ranks: what a doubling beyond the data adds."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy.family import Block, Family, folds
from benchmarks.accuracy.fit import best_fit, times_of
from nearpeak.bounds.terms.link_traffic import HOST
from nearpeak.targets import target_of

PAIR = 2
"""Ranks that scalars are fitted on; those of twice as many are scored."""
READ = (0, 1, 2)
"""Folds of sites that are read."""
PRIOR_ROWS = 3.0
"""Rows that usual scalars count for: pairs alone say little about steps of a ring."""


def missed_by_device(family: Family, blocks: Sequence[Block]) -> Iterator[tuple[str, Any]]:
    """Yield `links` or `host`, by how the boards of a device meet, and logarithms of measured over predicted times."""
    allowed = [block for block in blocks if family.is_allowed(block)]
    for device in sorted({block.device for block in allowed}):
        picked = [(block, _ranks(block)) for block in allowed if block.device == device]
        fitted = [(block, np.flatnonzero(ranks == PAIR)) for block, ranks in picked if (ranks == PAIR).any()]
        scored = [(block, np.flatnonzero(ranks == 2 * PAIR)) for block, ranks in picked if (ranks == 2 * PAIR).any()]
        if fitted and scored:
            values = _values(family, fitted)
            missed = [np.log(one.measured_s[rows] / times_of(family, one, rows)(values)) for one, rows in scored]
            yield "host" if set(target_of(device).links) <= {HOST} else "links", np.concatenate(missed)


def _ranks(block: Block) -> Any:
    """Return the ranks of the rows of a block; 0 for those that are not read."""
    return np.where(np.isin(folds(block), READ), np.asarray(block.axes["ranks"]), 0)


def _values(family: Family, picked: Sequence[tuple[Block, Any]]) -> Any:
    """Return the scalars that fit some rows of blocks together."""
    each = [times_of(family, block, rows) for block, rows in picked]
    measured = np.concatenate([block.measured_s[rows] for block, rows in picked])
    fixed = set.intersection(*(set(family.fixed(block)) for block, _ in picked))
    return best_fit(
        family, lambda v: np.concatenate([one(v) for one in each]), measured, tuple(fixed), PRIOR_ROWS
    ).values
