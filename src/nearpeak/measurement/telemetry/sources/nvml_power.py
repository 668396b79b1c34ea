"""NVIDIA GPUs through NVML: power, clocks and throttle reasons at a high rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry import nvml_library

_REASONS = (
    ("idle", 0x1), ("applications clock setting", 0x2), ("software power cap", 0x4), ("hardware slowdown", 0x8),
    ("sync boost", 0x10), ("software thermal slowdown", 0x20), ("hardware thermal slowdown", 0x40),
    ("hardware power brake", 0x80), ("display clock setting", 0x100),
)  # fmt: skip
"""NVML API reference, nvmlClocksEventReasons."""
_STEP_W = 1e-3
_API = "NVML API reference"


def source(root: Path) -> nvml_library.NvmlSource:
    """Return power, clocks and reasons of all GPUs."""
    del root
    nvml = nvml_library.library()
    pairs = [(gpu, _fields(nvml, gpu)) for gpu in nvml_library.devices(nvml)]
    averaged = [
        any(channel.name.endswith(".power_mean") and not channel.status for channel in fields.channels)
        for _, fields in pairs
    ]
    made = [(fields, _calls(nvml, gpu, averaged=has)) for (gpu, fields), has in zip(pairs, averaged, strict=True)]
    return nvml_library.NvmlSource("nvml_power", 100.0, nvml, made)


def _fields(nvml: Any, gpu: nvml_library.Device) -> nvml_library.Fields:
    def power(name: str, kind: str, meaning: str, window_s: float | None, domain: str) -> Channel:
        return Channel(
            name=f"{gpu.name}.{name}", unit="W", kind=kind, meaning=f"{meaning} ({_API}, {_POWER})", resolution=_STEP_W,
            window_s=window_s, domain=domain, device=gpu.uuid,
        )  # fmt: skip

    board = f"{gpu.name}.module"
    return nvml_library.Fields(nvml, gpu, (
        (power("power", "instantaneous", "power of the GPU now", None, gpu.name), "NVML_FI_DEV_POWER_INSTANT", 0, 1e-3),
        (power("power_mean", "mean", "mean power of the GPU over a second", 1.0, gpu.name),
         "NVML_FI_DEV_POWER_AVERAGE", 0, 1e-3),
        (power("module.power", "instantaneous", "power of the whole module now", None, board),
         "NVML_FI_DEV_POWER_INSTANT", 1, 1e-3),
    ))  # fmt: skip


_POWER = "NVML_FI_DEV_POWER_INSTANT and _AVERAGE"


def _calls(nvml: Any, gpu: nvml_library.Device, *, averaged: bool) -> Sequence[tuple[Channel, nvml_library.Call]]:
    reasons = Channel(
        name=f"{gpu.name}.throttle", unit="bits", kind="flags", bits=_REASONS, device=gpu.uuid,
        meaning=f"what sets the clock now ({_API}, nvmlClocksEventReasons)",
    )  # fmt: skip
    named = "nvmlDeviceGetCurrentClocksEventReasons"
    ask = getattr(nvml, named, None) or getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    usage = Channel(
        name=f"{gpu.name}.power_usage", unit="W", kind="mean", resolution=_STEP_W, window_s=1.0, domain=gpu.name,
        device=gpu.uuid,
        meaning=f"power: mean over a second from Ampere on but GA100, else of now ({_API}, nvmlDeviceGetPowerUsage)",
    )  # fmt: skip
    pairs = [
        nvml_library.clock(nvml, gpu, "sm_clock", nvml.NVML_CLOCK_SM),
        (reasons, (lambda: float(ask(gpu.handle))) if ask else (lambda: _absent(named))),
    ]  # fmt: skip
    if not averaged:  # it duplicates the field, and each call costs CPU time
        pairs.append((usage, lambda: 1e-3 * nvml.nvmlDeviceGetPowerUsage(gpu.handle)))
    return [nvml_library.checked_channel(nvml, channel, call) for channel, call in pairs]


def _absent(name: str) -> float:
    raise AttributeError(name, name=name)


SOURCE = source
