"""Classification of measurements below their bound: cached inputs, other algorithms, or impossible."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nearpeak.bounds.bound_table import answered_table
from nearpeak.bounds.case_bound import case_bound
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.prediction.calibration.samples import Samples
from nearpeak.prediction.kernel_model import case_columns
from nearpeak.prediction.model_choice import model_for
from nearpeak.prediction.provenance import ANY

BELOW_RATIO = 0.99
"""Times above this share of the bound may be the timer's."""
IMPOSSIBLE = "faster_than_bound"
"""Kind of those that nothing explains."""


def kinds_below(samples: Samples, target: Target, bound_s: Any) -> Iterator[tuple[int, str]]:
    """Yield the positions of samples below their bounds with the kind of each, as audits name it.

    Data that fit in the last cache may be found there (`hot`), and libraries run some cases by other than classical
    algorithms (`other_algorithm`); what neither explains is IMPOSSIBLE.

    >>> from nearpeak.prediction.calibration.samples import samples_of
    >>> from nearpeak.targets import target_of
    >>> table = {"op": "gemm", "dtype": "bf16", "m": [8192, 8192], "n": 8192, "k": 8192, "time_ms": [1.6, 0.2]}
    >>> board, found = target_of("h100_sxm"), samples_of(table)
    >>> list(kinds_below(found, board, answered_table(found.table, board, Policy()).bound_s))
    [(1, 'faster_than_bound')]
    """
    measured, below = samples.measured_s, np.flatnonzero(samples.measured_s < BELOW_RATIO * bound_s)
    if not len(below):
        return
    warm_s = answered_table(samples.table, target, Policy(cold_inputs=False)).bound_s
    capacity = target.l2.capacity_bytes
    for i in below.tolist():
        work = work_of(samples.cases[i])
        fits = capacity is not None and work.read_bytes + work.write_bytes <= capacity
        is_hot = fits and measured[i] >= BELOW_RATIO * warm_s[i]
        by_another = not is_hot and measured[i] >= BELOW_RATIO * _any_s(samples.cases[i], target)
        yield i, "hot" if is_hot else "other_algorithm" if by_another else IMPOSSIBLE


def _any_s(case: Case, target: Target) -> float:
    """Return the bound over all algorithms; infinite for cases that libraries run by classical ones only."""
    try:
        admits = np.any(model_for(case, target).admits_any(case_columns(case)))
    except NotModelledError:
        return math.inf
    return case_bound(case, target, ANY).time_s if admits else math.inf
