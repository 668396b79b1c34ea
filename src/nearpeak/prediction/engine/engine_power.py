"""Mean power of a board that runs kernels, by the place where it is measured; not a share of a power limit."""

import tomllib
from dataclasses import dataclass
from functools import cache

from nearpeak.core.edge.scoped_power import PowerScope, ScopedPower
from nearpeak.core.work.target import Target
from nearpeak.prediction.engine.engine_coefficients import FILE, engine_calibration
from nearpeak.prediction.engine.engine_kernels import EngineKernels
from nearpeak.prediction.engine.engine_time import kernel_times


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """Power of one scope over clocks and multiprocessors, with its interval and source."""

    rest_w: float
    """What does not follow the clock of the device."""
    clock_w: float
    """What each multiprocessor draws per gigahertz while any kernel runs."""
    products_w: float
    """What it draws beyond that while it forms products."""
    pace_exponent_ratio: float
    """Logarithm of power over that of clock times multiprocessors."""
    interval_ratio: float
    """Factor of the 90 % interval."""
    row_count: int
    """Figures behind it."""
    source: str
    """Where they are published."""


@cache
def power_law(scope: PowerScope) -> PowerLaw:
    """Return the law of a scope, fitted on published figures.

    >>> power_law(PowerScope.WALL).rest_w > power_law(PowerScope.CPU_GPU_CV).rest_w
    True
    """
    return PowerLaw(**tomllib.loads(FILE.read_text(encoding="utf-8"))["power"][scope.value])


def engine_power(kernels: EngineKernels, target: Target, scope: PowerScope) -> ScopedPower:
    """Return the mean power while a step runs without pause.

    >>> from nearpeak.ops import case
    >>> from nearpeak.prediction.engine.engine_kernels import engine_kernels
    >>> from nearpeak.targets import target_of
    >>> step = engine_kernels({case("gemm", m=512, n=512, k=512, dtype="int8"): 1})
    >>> boards = [target_of(f"jetson_orin_nano:{mode}") for mode in ("7W", "25W")]
    >>> low, high = (engine_power(step, board, PowerScope.WALL) for board in boards)
    >>> low < high
    True
    """
    times = kernel_times(kernels, target, engine_calibration().coefficients)
    share = float((times.products_s * kernels.counts).sum() / (times.total_s * kernels.counts).sum())
    law, pace = power_law(scope), target.sm_count * target.clock_hz / 1e9
    power_w = law.rest_w + (law.clock_w + law.products_w * share) * pace**law.pace_exponent_ratio
    return ScopedPower(power_w=power_w, scope=scope)
