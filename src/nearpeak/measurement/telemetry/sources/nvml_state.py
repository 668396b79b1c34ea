"""NVIDIA GPUs through NVML: temperatures, utilisation, memory and power limit at a low rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry import nvml_library

_API = "NVML API reference"


def source(root: Path) -> nvml_library.NvmlSource:
    """Return the slow quantities of all GPUs."""
    del root
    nvml = nvml_library.library()
    made = []
    for gpu in nvml_library.devices(nvml):
        memory = _channel(gpu, "memory.temperature", "celsius", "instantaneous", "temperature of the memory now", 1.0)
        fields = nvml_library.Fields(nvml, gpu, ((memory, "NVML_FI_DEV_MEMORY_TEMP", 0, 1.0),))
        made.append((fields, _calls(nvml, gpu)))
    return nvml_library.NvmlSource("nvml_state", 10.0, nvml, made)


def _calls(nvml: Any, gpu: nvml_library.Device) -> Sequence[tuple[Channel, nvml_library.Call]]:
    handle = gpu.handle
    busy = "share of time, over the last sixth of a second to second, in which"
    pairs = (
        nvml_library.clock(nvml, gpu, "memory_clock", nvml.NVML_CLOCK_MEM),
        (_channel(gpu, "temperature", "celsius", "instantaneous", "temperature of the chip now", 1.0),
         lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        (_channel(gpu, "busy", "ratio", "mean", f"{busy} a kernel ran ({_API}, nvmlUtilization_t)", 0.01, 1.0),
         lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        (_channel(gpu, "memory.busy", "ratio", "mean", f"{busy} memory was read or written ({_API}, nvmlUtilization_t)",
                  0.01, 1.0),
         lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100),
        (_channel(gpu, "memory.used", "B", "instantaneous", "memory that processes and the driver hold", 1.0),
         lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
        (_channel(gpu, "power_limit", "W", "instantaneous", "power limit that is enforced now", 1e-3),
         lambda: 1e-3 * nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
    )  # fmt: skip
    return [nvml_library.checked_channel(nvml, channel, call) for channel, call in pairs]


def _channel(
    gpu: nvml_library.Device,
    name: str,
    unit: str,
    kind: str,
    meaning: str,
    resolution: float,
    window_s: float | None = None,
) -> Channel:
    return Channel(
        name=f"{gpu.name}.{name}", unit=unit, kind=kind, meaning=meaning, resolution=resolution,
        window_s=window_s, device=gpu.uuid,
    )  # fmt: skip


SOURCE = source
