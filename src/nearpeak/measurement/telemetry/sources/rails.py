"""Power of supply rails from INA3221 and INA2xx monitors, as on Jetson boards."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable
from nearpeak.measurement.telemetry.sysfs_files import NumberFile, by_number, text_of

_BUS_STEP_V, _SHUNT_STEP_V = 8e-3, 40e-6
"""Steps of the INA3221's two converters (Texas Instruments SBOS576, electrical characteristics)."""
_GAIN_RATIO = 0.005
"""Their greatest gain errors together, 0.25 % each (SBOS576); the shunt's own tolerance comes on top."""
Rail = tuple[Channel, Sequence[NumberFile], Callable[[Sequence[float]], float]]


class Rails:
    """The rails of all monitors: current times voltage where the chip does not multiply itself."""

    name, most_hz = "rails", 100.0

    def __init__(self, root: Path) -> None:
        """Find the monitors by their drivers; which driver it is decides the units of its files, never a magnitude."""
        monitors = list(_apart([*_of_hwmon(root), *_of_iio(root)]))
        if not monitors:
            raise Unavailable("no INA3221 or INA2xx monitor has a driver here")
        self._rails = monitors
        self.channels = tuple(channel for channel, _, _ in monitors)

    def read(self) -> Sequence[float]:
        """Return the power of each rail."""
        return [
            math.nan if channel.status else power([file.read() for file in files])
            for channel, files, power in self._rails
        ]

    def close(self) -> None:
        """Close all files."""
        for _, files, _ in self._rails:
            for file in files:
                file.close()


def _apart(rails: Sequence[Rail]) -> Iterator[Rail]:
    """Yield rails, further ones of a label with a number: energies are kept by it."""
    seen: Counter[str] = Counter()
    for channel, files, power in rails:
        seen[channel.domain] += 1
        label = f"{channel.domain}.{seen[channel.domain]}" if seen[channel.domain] > 1 else channel.domain
        yield replace(channel, name=f"{label}.power", domain=label), files, power


def _of_hwmon(root: Path) -> Iterator[Rail]:
    """Yield rails of current drivers: in*_input in mV and curr*_input in mA, or power*_input in µW."""
    for chip in by_number(list((root / "sys/class/hwmon").glob("hwmon*"))):
        if not text_of(chip / "name").startswith("ina"):
            continue
        multiplied = by_number(list(chip.glob("power*_input")))
        for path in multiplied:
            label = text_of(chip / path.name.replace("_input", "_label")) or text_of(chip / "in1_label") or chip.name
            yield _rail(label, [NumberFile(path, 1e-6)], _first, 1e-6, None, "power that the monitor multiplies itself")
        for path in [] if multiplied else by_number(list(chip.glob("curr*_input"))):
            number = path.name[4:].partition("_")[0]
            label = text_of(chip / f"in{number}_label") or f"{chip.name}.{number}"
            files = [NumberFile(chip / f"in{number}_input", 1e-3), NumberFile(path, 1e-3)]
            shunt = text_of(chip / f"shunt{number}_resistor")
            yield _product(label, files, float(shunt) * 1e-6 if shunt.isdigit() and int(shunt) else None)


def _of_iio(root: Path) -> Iterator[Rail]:
    """Yield rails of JetPack 4's driver: rail_name_*, in_power*_input in mW."""
    pattern = "sys/bus/i2c/drivers/ina3221x/*/iio:device*"
    for chip in by_number(list(root.glob(pattern))):
        for path in by_number(list(chip.glob("rail_name_*"))):
            number, label = path.name.removeprefix("rail_name_"), text_of(path)
            file = NumberFile(chip / f"in_power{number}_input", 1e-3)
            yield _rail(label, [file], _first, 1e-3, _GAIN_RATIO, "power that the driver multiplies, in steps of 1 mW")


def _product(label: str, files: list[NumberFile], shunt_ohm: float | None) -> Rail:
    """Return a rail of voltage times current, with the step that both converters leave at the first reading."""
    volts, amperes = (file.read() for file in files)
    step = None
    if shunt_ohm and not math.isnan(volts * amperes):
        step = abs(amperes) * _BUS_STEP_V + volts * _SHUNT_STEP_V / shunt_ohm
    meaning = "bus voltage times shunt current, read one after the other"
    return _rail(label, files, math.prod, step, _GAIN_RATIO, meaning)


def _rail(
    label: str, files: list[NumberFile], power: Callable[[Sequence[float]], float], step: float | None,
    gain_ratio: float | None, meaning: str,
) -> Rail:  # fmt: skip
    channel = Channel(
        name=f"{label}.power", unit="W", kind="instantaneous", domain=label, meaning=meaning, resolution=step,
        gain_ratio=gain_ratio, status=next((file.status for file in files if file.status), ""),
    )  # fmt: skip
    return channel, files, power


def _first(values: Sequence[float]) -> float:
    return values[0]


SOURCE = Rails
