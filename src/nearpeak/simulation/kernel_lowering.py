"""Interface of lowerings, and the device figures and fitted rates that they read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.simulation.engine.device_work import Node
from nearpeak.simulation.machine import Limits
from nearpeak.simulation.machine_from_target import limits_of
from nearpeak.simulation.machine_units import PS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """How cases of some operators become kernels."""

    ops: tuple[str, ...]
    """Operators; none for all that no other file names."""
    kernels: Callable[[Case, Target, Setting], tuple[Node, ...]]
    """Rule: case, target and how the kernels run, to kernels and copies that follow one another."""
    phases: tuple[str, ...] = ("forward",)
    """Phases of the operators that it knows; others stream through memory."""


def ceilings(case: Case, target: Target, family: str) -> Mapping[str, float]:
    """Return the measured rates of a device for a family: coefficients by name.

    They say what share of a rate kernels reach and what starting costs, never how long a kernel takes.
    """
    calibration = calibration_for(target, KERNEL_MODELS[family], case_columns(case))
    return {coefficient.name: coefficient.value for coefficient in calibration.coefficients}


def ps(time_s: float) -> int:
    """Return seconds as whole picoseconds, rounded up.

    >>> ps(1e-6)
    1000000

    Raises:
        NotModelledError: it is no number, as of a case without anything to do.
    """
    if not math.isfinite(time_s):
        raise NotModelledError("simulate: an axis of the case is 0, so that no block runs")
    return math.ceil(time_s * PS_PER_S - 1e-6)


def filling(target: Target, each_count: int = 1) -> Limits:
    """Return the needs of blocks of which `each_count` fill a multiprocessor.

    >>> from nearpeak.targets import target_of
    >>> filling(target_of("h100_sxm"), 2).registers_count
    32768
    """
    limits = limits_of(target)
    return Limits(
        ctas_count=1, threads_count=min(256, limits.threads_count // each_count),
        registers_count=limits.registers_count // each_count, shared_bytes=limits.shared_bytes // each_count,
    )  # fmt: skip
