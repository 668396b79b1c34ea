"""NVIDIA GPUs through NVML: the energy counter, read as often as its CPU cost allows."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry import nvml_library

MOST_HZ, LEAST_HZ = 10.0, 0.25
"""The counter moves ten times a second on an H200 (measured 2026-11-27); ends of a window lie between two readings,
of which the later one is requested when the window ends."""
MOST_CPU_RATIO = 0.0015
"""Share of a core that reading it may take: a call takes 3.3 to 4.5 ms of CPU time on an H200 with driver 580.159,
where every other call of the sources beside takes 1 to 7 us (measured 2026-11-27, docs/lab/h200.md)."""
_STEP_J = 1e-3


def source(root: Path) -> nvml_library.NvmlSource:
    """Return the energy counters of all GPUs."""
    del root
    nvml = nvml_library.library()
    made = [(_fields(nvml, gpu), ()) for gpu in nvml_library.devices(nvml)]

    def read() -> None:
        for fields, _ in made:
            fields.read()

    return nvml_library.NvmlSource("nvml_energy", affordable_hz(read, time.thread_time), nvml, made)


def affordable_hz(read: Callable[[], object], clock_s: Callable[[], float]) -> float:
    """Return how often per second `read` may be called, from the CPU time of one call.

    >>> ticks = iter([0.0, 0.00075])
    >>> affordable_hz(lambda: None, lambda: next(ticks))
    2.0
    """
    begin_s = clock_s()
    read()
    cost_s = clock_s() - begin_s
    return min(MOST_HZ, max(LEAST_HZ, MOST_CPU_RATIO / cost_s)) if cost_s > 0 else MOST_HZ


def _fields(nvml: Any, gpu: nvml_library.Device) -> nvml_library.Fields:
    counter = Channel(
        name=f"{gpu.name}.energy", unit="J", kind="counter", domain=gpu.name, device=gpu.uuid, resolution=_STEP_J,
        meaning="energy since the driver was loaded (NVML API reference, nvmlDeviceGetTotalEnergyConsumption); "
        "of the module where GPU and processor share one",
    )  # fmt: skip
    return nvml_library.Fields(nvml, gpu, ((counter, "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0, 1e-3),))


SOURCE = source
