"""Work whose amount is known: twenty units, and twenty-one, which is five per cent more."""

from collections.abc import Mapping
from typing import Any

import numpy as np

UNITS = 20


def base(arrays: Mapping[str, Any], **_: Any) -> dict[str, Any]:
    """Return tanh of x after twenty rounds of it."""
    return _worked(arrays["x"], UNITS)


def planted(arrays: Mapping[str, Any], **_: Any) -> dict[str, Any]:
    """Return the same after twenty-one rounds: 5 % more work."""
    return _worked(arrays["x"], UNITS + 1)


def _worked(x: Any, unit_count: int) -> dict[str, Any]:
    y = x
    for _ in range(unit_count):
        y = np.tanh(x)
    return {"y": y}


base.arrays = planted.arrays = "numpy"  # type: ignore[attr-defined]  # read by the callable runner
