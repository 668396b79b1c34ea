"""The 90 % interval of a step: one factor that all kernels of a device share, one of each family, one of the host."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from nearpeak.systems.training.rank_lanes import FamilyTime, LaneTime

DRAW_COUNT = 200
"""Draws of each interval."""
COMMON_SHARE = 0.5
"""Share of the variance of a kernel family's logarithm that all kernels of a device have in common: an assumption."""
INSTALLATION_SPREAD = 0.07
"""Standard deviation of the logarithm of all kernel times of another installation: libraries, clocks and data of a
training run against those of kernel benchmarks. Chosen so that nine of ten steps of public sources lie inside, see
benchmarks/training_scale.py."""
UNCONFIRMED_SPREAD = 0.27
"""The same under a software stack that measured steps have not confirmed: root mean square over the four stacks of
which nothing was fitted (ddp-apex, fsdp-composer, megatron-bridge, megatron-lm-2022) of the mean logarithm of measured
over predicted steps: 0.11, 0.09, 0.08, 0.51 (389 public steps). One of four is far off, which a median would leave out:
V100 of 2021 behind Omni-Path, whose own days differ by a factor of 1.8. Without that one it is 0.09, without any other
0.30 to 0.31."""
_QUANTILE = 1.645
"""Standard deviations from the middle to the ends of a 90 % interval."""
_FACTOR_COUNT = 48
"""Independent factors that are drawn; families beyond share them in turn."""


def step_interval(
    device: LaneTime, fixed_s: float, step_s: float, host_ratio: float, *, is_confirmed: bool = True
) -> tuple[float, float]:  # fmt: skip
    """Return the ends of the 90 % interval of a step that is expected to take `step_s`.

    Args:
        device: what the slowest stage runs in the step.
        fixed_s: fixed host time of the step.
        host_ratio: factor by which host times may be off either way.
        is_confirmed: whether measured steps have confirmed kernels under this software stack.

    Source: Monte Carlo with seeded draws; lognormal factors.

    >>> lane = LaneTime(time_s=1.0, families={"gemm": FamilyTime(1.0, 0.9, 1.1)})
    >>> low_s, high_s = step_interval(lane, 0.0, 1.0, 1.5)
    >>> 0.8 < low_s < 1.0 < high_s < 1.2
    True
    """
    import numpy as np

    draws, host = _normals(), math.log(host_ratio) / _QUANTILE
    busy_s = sum(part.time_s for part in device.families.values())
    if not busy_s:
        return step_s, step_s
    drawn_s = sum(
        part.time_s * factor for part, factor in zip(device.families.values(), _factors(device.families), strict=True)
    )
    drawn_s = drawn_s * np.exp((INSTALLATION_SPREAD if is_confirmed else UNCONFIRMED_SPREAD) * draws[:, 2])
    host_s = device.launch_s * np.exp(host * draws[:, 1])
    middle_s = max(busy_s, device.launch_s) + fixed_s
    totals_s = np.maximum(drawn_s, host_s) + fixed_s * np.exp(host * draws[:, 1])
    low, high = np.quantile(totals_s / middle_s, (0.05, 0.95))
    return min(float(low), 1.0) * step_s, max(float(high), 1.0) * step_s


def _factors(families: Mapping[str, FamilyTime]) -> list[Any]:
    """Return the drawn factors of each family."""
    import numpy as np

    draws, factors = _normals(), []
    for place, (name, part) in enumerate(families.items()):
        spread = math.log(part.high_s / part.low_s) / (2 * _QUANTILE) if part.low_s > 0 else 0.0
        family_draws = draws[:, 3 + place % (_FACTOR_COUNT - 3)]
        if name.startswith("collective"):
            factors.append(np.exp(spread * family_draws))
        else:
            common = math.sqrt(COMMON_SHARE) * draws[:, 0]
            factors.append(np.exp(spread * (common + math.sqrt(1 - COMMON_SHARE) * family_draws)))
    return factors


@lru_cache(maxsize=1)
def _normals() -> Any:
    """Return seeded standard normal draws: the device's, the host's, the installation's, then one for each family."""
    import numpy as np

    half = np.random.default_rng(20260101).standard_normal((DRAW_COUNT // 2, _FACTOR_COUNT))
    return np.concatenate([half, -half])  # antithetic, so that the middle stays where it is
