"""Regression features of a power mode: inverse GPU, memory and host rates relative to the fastest mode."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearpeak.core.edge.board_mode import BoardMode
from nearpeak.errors import SpecError

TERMS = ("multiprocessors", "memory", "host")
"""What sets the pace: clock times multiprocessors, memory rate, clock of the host."""


def inverse_rates(modes: Sequence[BoardMode]) -> Any:
    """Return 1/(clock · multiprocessors), 1/memory rate and 1/host clock of each mode; 1 for the fastest.

    A mode of unknown memory rate or host clock has the largest that is known on its board.

    >>> from nearpeak.core.edge.board_mode import BoardMode
    >>> slow, fast = (BoardMode(name="m", target="t", clock_hz=hz, sm_count=2, bandwidth_bytes_per_s=None,
    ...     budget_w=None) for hz in (1e9, 2e9))
    >>> inverse_rates([slow, fast])[:, 0].tolist()
    [2.0, 1.0]
    """
    if not modes:
        raise SpecError("modes: none are given")
    columns = [
        [mode.clock_hz * mode.sm_count for mode in modes],
        _known([mode.bandwidth_bytes_per_s for mode in modes]),
        _known([mode.host_clock_hz for mode in modes]),
    ]
    rates = np.array(columns, dtype=float).T
    inverse: Any = rates.max(0) / rates
    return inverse


def _known(values: Sequence[float | None]) -> list[float]:
    most = max((value for value in values if value), default=1.0)
    return [value or most for value in values]
