"""Units shared by the ROCm formats: grids in work-items, copy directions, agent numbers."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.traces.reading.table_rows import integers, whole
from nearpeak.traces.timeline.kernel_names import copy_of
from nearpeak.traces.timeline.trace_columns import MISSING

Array = npt.NDArray[Any]


def blocks_of(items: Array, block: Array) -> Array:
    """Return grids in blocks of grids in work-items; a last block that is not full counts.

    >>> blocks_of(np.array([[1024, 1024, 1]]), np.array([[64, 1, 1]])).tolist()
    [[16, 1024, 1]]
    """
    known = (items > 0).all(axis=1, keepdims=True) & (block > 0).all(axis=1, keepdims=True)
    return np.where(known, -(-items // np.maximum(block, 1)), MISSING)


def copy_fields(names: Sequence[str]) -> dict[str, Array]:
    """Return direction and ends of copies by their names."""
    known = np.array([copy_of(name) for name in names], np.int64).reshape(-1, 3)
    return {"copy_kind": known[:, 0], "source_memory": known[:, 1], "target_memory": known[:, 2]}


def agents_of(cells: Sequence[object]) -> Array:
    """Return numbers of agents, which newer files print as `Agent 4`."""
    return integers([re.sub(r"^Agent\s+", "", cell) if isinstance(cell, str) else cell for cell in cells])


def triple(cells: Sequence[Sequence[object]]) -> Array:
    """Return three columns as one of three figures."""
    return np.stack([integers(column) for column in cells], axis=1) if len(cells) == 3 else np.zeros((0, 3), np.int64)


def handle(value: object) -> int:
    """Return an id that may be wrapped as {"handle": 7}."""
    return whole(value.get("handle") if isinstance(value, dict) else value)
