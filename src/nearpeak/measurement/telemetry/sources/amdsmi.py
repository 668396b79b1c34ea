"""AMD GPUs through amdsmi: power, energy, clocks, throttle reasons, temperature, utilisation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable

_STEP_J = 15.3e-6
"""Step of the energy accumulator (AMD SMI documentation, amdsmi_get_energy_count), where the device does not say it."""
REASONS = (
    ("processor hot", 0x1, "active_prochot_thrm"), ("power limit", 0x2, "active_ppt_pwr"),
    ("socket hot", 0x4, "active_socket_thrm"), ("voltage regulator hot", 0x8, "active_vr_thrm"),
    ("memory hot", 0x10, "active_hbm_thrm"),
)  # fmt: skip
"""Throttle reason, its bit, and the entry of amdsmi_get_violation_status (AMD SMI documentation)."""
Call = Callable[[], float]


class AmdSmi:
    """All AMD GPUs; a quantity that a device answers with `N/A` or an error has a status instead of values."""

    name, most_hz = "amdsmi", 100.0

    def __init__(self, root: Path) -> None:
        """Start the library and read every quantity once."""
        del root
        try:
            import amdsmi
        except ImportError:
            raise Unavailable("amdsmi is not installed; it comes with ROCm") from None
        self._library: Any = amdsmi
        try:
            amdsmi.amdsmi_init()
            handles = amdsmi.amdsmi_get_processor_handles()
        except amdsmi.AmdSmiException as error:
            raise Unavailable(f"amdsmi does not start: {error}") from None
        if not handles:
            raise Unavailable("amdsmi sees no GPU")
        pairs = [pair for index, handle in enumerate(handles) for pair in _quantities(amdsmi, f"gpu{index}", handle)]
        self._calls = [call for _, call in pairs]
        self.channels = tuple(replace(channel, status=self._refusal(call)) for channel, call in pairs)

    def _refusal(self, call: Call) -> str:
        try:
            call()
        except (self._library.AmdSmiException, AttributeError, KeyError, TypeError, ValueError) as error:
            return f"amdsmi: {error}"
        return ""

    def read(self) -> Sequence[float]:
        """Return one value per channel."""
        return [
            math.nan if channel.status else self._safe(call)
            for channel, call in zip(self.channels, self._calls, strict=True)
        ]

    def _safe(self, call: Call) -> float:
        try:
            return call()
        except (self._library.AmdSmiException, KeyError, TypeError, ValueError):
            return math.nan

    def close(self) -> None:
        """Stop the library."""
        self._library.amdsmi_shut_down()


def _quantities(smi: Any, gpu: str, handle: Any) -> Sequence[tuple[Channel, Call]]:
    def channel(name: str, unit: str, kind: str, meaning: str, resolution: float | None) -> Channel:
        domain = gpu if unit in ("W", "J") else ""
        return Channel(
            name=f"{gpu}.{name}", unit=unit, kind=kind, meaning=meaning, resolution=resolution, domain=domain
        )

    throttle = Channel(
        name=f"{gpu}.throttle", unit="bits", kind="flags", bits=tuple((name, bit) for name, bit, _ in REASONS),
        meaning="what holds the clocks down now (AMD SMI documentation, amdsmi_get_violation_status)",
    )  # fmt: skip
    return (
        (throttle, lambda: _reasons(smi.amdsmi_get_violation_status(handle))),
        (channel("power", "W", "instantaneous", "power of the socket now", 1.0),
         lambda: _number(smi.amdsmi_get_power_info(handle), "current_socket_power")),
        (channel("power_mean", "W", "mean", "power of the socket, mean over a window that is not stated", 1.0),
         lambda: _number(smi.amdsmi_get_power_info(handle), "average_socket_power")),
        (channel("energy", "J", "counter", "energy since the driver was loaded", _STEP_J),
         lambda: _energy_j(smi.amdsmi_get_energy_count(handle))),
        (channel("clock", "Hz", "instantaneous", "clock of the compute units now", 1e6),
         lambda: 1e6 * _number(smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX), "clk", "cur_clk")),
        (channel("memory_clock", "Hz", "instantaneous", "clock of the memory now", 1e6),
         lambda: 1e6 * _number(smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM), "clk", "cur_clk")),
        (channel("temperature", "celsius", "instantaneous", "temperature of the hottest spot now", 1.0),
         lambda: float(smi.amdsmi_get_temp_metric(
             handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT))),
        (channel("busy", "ratio", "mean", "share of busy time over a window that is not stated", 0.01),
         lambda: _number(smi.amdsmi_get_gpu_activity(handle), "gfx_activity") / 100),
    )  # fmt: skip


def _reasons(answer: Any) -> float:
    """Return the bits of the active reasons; a device that reports none of them is a ValueError."""
    known = [(bit, answer[entry]) for _, bit, entry in REASONS if str(answer.get(entry, "N/A")) != "N/A"]
    if not known:
        raise ValueError("N/A")
    return float(sum(bit for bit, active in known if int(active)))


def _energy_j(answer: Any) -> float:
    """Return count times step: the step is stated in microjoules."""
    count = _number(answer, "energy_accumulator", "power")
    return count * (_number(answer, "counter_resolution") * 1e-6 if "counter_resolution" in answer else _STEP_J)


def _number(answer: Any, *names: str) -> float:
    """Return the first of some entries; `N/A` and the like are a ValueError."""
    name = next((entry for entry in names if entry in answer), names[0])
    return float(answer[name])


SOURCE = AmdSmi
