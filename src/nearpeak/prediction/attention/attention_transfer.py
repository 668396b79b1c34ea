"""Scalars of attention of one device for another: what documented power says about the rate that boards sustain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.attention.attention_coefficients import SCALARS
from nearpeak.prediction.calibration.related_devices import products_generation
from nearpeak.prediction.power.board_power import repowered
from nearpeak.prediction.product_units import fastest

_RATE = [[one.name for one in SCALARS].index(name) for name in ("tensor_ratio", "clock_ratio")]


def transferred(
    target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]], *, is_kin: bool
) -> list[Any]:
    """Return the scalars of each measured device with the board power of `target`.

    Clocks, launch floors, memory and caches need no transfer: the form reads them. A product takes about the same
    energy on boards whose kernels feed the matrix units in the same way.

    Args:
        is_kin: whether the devices run the kernels of `target`.
    """
    values = [np.array(one, dtype=float) for _, one in measured]
    for (device, _), one in zip(measured, values, strict=True):
        alike = is_kin or products_generation(target) == products_generation(device)
        if alike and target.power_w and device.power_w:
            first, second = (fastest(board, DTYPES[dtypes["dtype"]], "attention") for board in (target, device))
            found = repowered(tuple(one[_RATE]), target, device, (first, second))
            one[_RATE] = [min(v, SCALARS[place].high_value) for v, place in zip(found, _RATE, strict=True)]
    return values
