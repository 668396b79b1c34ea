"""NVIDIA GPUs: power, energy, clocks and what holds the clocks down, at a high rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.telemetry import Channel
from nearpeak.measure.telemetry.sources import _nvml

_REASONS = (
    ("idle", 0x1), ("applications clock setting", 0x2), ("software power cap", 0x4), ("hardware slowdown", 0x8),
    ("sync boost", 0x10), ("software thermal slowdown", 0x20), ("hardware thermal slowdown", 0x40),
    ("hardware power brake", 0x80), ("display clock setting", 0x100),
)  # fmt: skip
"""NVML API reference, nvmlClocksEventReasons."""
_STEP_W, _STEP_J, _STEP_HZ = 1e-3, 1e-3, 1e6
_API = "NVML API reference"


def source(root: Path) -> _nvml.NvmlSource:
    """Return power, energy, clocks and reasons of all GPUs."""
    del root
    nvml = _nvml.library()
    made = [(_fields(nvml, one), _calls(nvml, one)) for one in _nvml.devices(nvml)]
    return _nvml.NvmlSource("nvml_power", 100.0, nvml, made)


def _fields(nvml: Any, gpu: _nvml.Device) -> _nvml.Fields:
    def power(name: str, kind: str, meaning: str, window_s: float | None, domain: str) -> Channel:
        return Channel(
            name=f"{gpu.name}.{name}", unit="W", kind=kind, meaning=f"{meaning} ({_API}, {_POWER})", resolution=_STEP_W,
            window_s=window_s, domain=domain, device=gpu.uuid,
        )  # fmt: skip

    board = f"{gpu.name}.module"
    return _nvml.Fields(nvml, gpu, (
        (power("power", "instantaneous", "power of the GPU now", None, gpu.name), "NVML_FI_DEV_POWER_INSTANT", 0, 1e-3),
        (power("power_mean", "mean", "mean power of the GPU over a second", 1.0, gpu.name),
         "NVML_FI_DEV_POWER_AVERAGE", 0, 1e-3),
        (power("module.power", "instantaneous", "power of the whole module now", None, board),
         "NVML_FI_DEV_POWER_INSTANT", 1, 1e-3),
        (Channel(name=f"{gpu.name}.energy", unit="J", kind="counter", domain=gpu.name, device=gpu.uuid,
                 meaning=f"energy since the driver was loaded ({_API}, nvmlDeviceGetTotalEnergyConsumption); "
                 "of the module where GPU and processor share one", resolution=_STEP_J),
         "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0, 1e-3),
    ))  # fmt: skip


_POWER = "NVML_FI_DEV_POWER_INSTANT and _AVERAGE"


def _calls(nvml: Any, gpu: _nvml.Device) -> Sequence[tuple[Channel, _nvml.Call]]:
    def clock(name: str, kind: int) -> tuple[Channel, _nvml.Call]:
        channel = Channel(
            name=f"{gpu.name}.{name}", unit="Hz", kind="instantaneous", resolution=_STEP_HZ,
            meaning=f"clock now ({_API}, nvmlDeviceGetClockInfo)", device=gpu.uuid,
        )  # fmt: skip
        return channel, lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(gpu.handle, kind)

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
        clock("sm_clock", nvml.NVML_CLOCK_SM), clock("memory_clock", nvml.NVML_CLOCK_MEM),
        (reasons, (lambda: float(ask(gpu.handle))) if ask else (lambda: _absent(named))),
        (usage, lambda: 1e-3 * nvml.nvmlDeviceGetPowerUsage(gpu.handle)),
    ]  # fmt: skip
    return [_nvml.asked(nvml, channel, call) for channel, call in pairs]


def _absent(name: str) -> float:
    raise AttributeError(name, name=name)


SOURCE = source
