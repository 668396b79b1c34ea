"""Power, temperature and clock of a simulated device, and the governor that keeps them within limits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.errors import SpecError
from nearpeak.simulation.machine_units import PIPES, PS_PER_S

NEAR_CELSIUS = 0.5
"""Distance from the limit of temperature at which the governor begins to hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What a board draws and what it may draw."""

    idle_w: float
    """Idle power."""
    limit_w: float
    """What the average may not exceed."""
    busy_w: float = 0.0
    """Additional power while any unit or memory works."""
    pipe_w: Mapping[str, float] = field(default_factory=dict)
    """Drawn by one multiprocessor's unit in full use at the highest clock, by name of the unit."""
    byte_j: Mapping[str, float] = field(default_factory=dict)
    """Drawn per byte through a pool, by name of the pool."""
    least_clock_ratio: float = 0.3
    """Lowest clock, of the highest."""
    voltage_floor_ratio: float = 0.6
    """Part of the voltage that does not fall with the clock: energy per operation goes with its square."""
    least_voltage_ratio: float = 0.0
    """Least voltage, of that at the highest clock."""
    step_ratio: float = 15 / 1980
    """What the clock falls or rises by at a time. Source: clocks that NVIDIA drivers list are 15 MHz apart."""
    step_ps: int = 1_000_000_000
    """Time between two decisions."""
    average_ps: int = 20_000_000_000
    """Time constant of the average: tens of milliseconds, by the fall of products' rates with their length."""
    peak_ratio: float = 1.1
    """Highest power over the limit (1.1: 10 % above it), beyond which the clock falls at the next decision. Assumption:
    products of 0.5 to 1 ms sustain 0.79 of an H100's rate in public tables, which takes as much."""
    governs: bool = True
    """Whether the clock follows; without, energy is counted and times stay as they were measured at usual limits."""
    ambient_celsius: float = 30.0
    """Temperature of an idle device, the default start of a run."""
    start_celsius: float | None = None
    """Temperature at which a run begins."""
    warming_celsius_per_w: float = 0.0
    """What each watt that is drawn for long warms it by; 0 leaves temperature alone."""
    warming_ps: int = 20_000_000_000_000
    """Time in which it comes nearer to that by 63 %: tens of seconds. Assumption: no document states it."""
    limit_celsius: float = 85.0
    """Temperature that the clock keeps it at or below."""
    leakage_ratio_per_celsius: float = 0.0
    """What a degree above `ambient_celsius` adds to the power at rest, of that power."""

    def __post_init__(self) -> None:
        """Refuse a board that may draw no more than it draws at rest, and what cannot be weighed."""
        if not self.idle_w >= 0 or not self.limit_w > self.idle_w:
            raise SpecError(f"power: a limit of {self.limit_w:g} W leaves nothing above {self.idle_w:g} W at rest")
        unknown = sorted(set(self.pipe_w) - set(PIPES))
        if unknown:
            raise SpecError(f"power: no unit {unknown[0]}; there are {', '.join(PIPES)}")
        if not 0 < self.least_clock_ratio <= 1 or min(self.step_ps, self.average_ps, self.warming_ps) < 1:
            raise SpecError("power: the lowest clock is a share of the highest, and times are positive")
        if min(self.busy_w, self.warming_celsius_per_w, self.leakage_ratio_per_celsius) < 0:
            raise SpecError("power: nothing is drawn, warmed or leaked below zero")
        if self.warming_celsius_per_w and not self.limit_celsius > self.resting_celsius():
            raise SpecError(
                f"power: a limit of {self.limit_celsius:g} °C leaves nothing above the {self.resting_celsius():g} °C "
                "of a device at rest"
            )

    def resting_celsius(self) -> float:
        """Return the temperature of a device that waits for long."""
        return self.ambient_celsius + self.warming_celsius_per_w * self.idle_w

    def voltage_ratio(self, clock_ratio: float) -> float:
        """Return the voltage at a clock, of the highest.

        >>> Power(idle_w=1, limit_w=2).voltage_ratio(0.5)
        0.8
        """
        falling = self.voltage_floor_ratio + (1 - self.voltage_floor_ratio) * clock_ratio
        return max(self.least_voltage_ratio, falling)


class Governor:
    """The clock of one run."""

    def __init__(self, power: Power) -> None:
        self.power = power
        self.clock_ratio = 1.0
        self.average_w = power.idle_w
        self.energy_j = 0.0
        self.celsius = power.ambient_celsius if power.start_celsius is None else power.start_celsius
        self.samples: list[tuple[int, float, float]] = []
        self.temperatures: list[float] = []
        self._drawn_j = 0.0

    def draw(self, dynamic_w: float, step_ps: int) -> None:
        """Account for what runs during a time: watts at the highest clock's voltage, beyond rest."""
        volt = self.power.voltage_ratio(self.clock_ratio)
        joule = (self._rest_w() + dynamic_w * volt * volt) * step_ps / PS_PER_S
        self.energy_j += joule
        self._drawn_j += joule

    def repeat(self, joule: float) -> None:
        """Account for periods that were jumped over."""
        self.energy_j += joule
        self._drawn_j += joule

    def decide(self, now_ps: int, since_ps: int) -> bool:
        """Set the clock for the next while; return whether it changed."""
        span = max(now_ps - since_ps, 1)
        mean_w = self._drawn_j / span * PS_PER_S
        self._drawn_j = 0.0
        self.average_w += (mean_w - self.average_w) * (1 - math.exp(-span / self.power.average_ps))
        self.samples.append((now_ps, mean_w, self.clock_ratio))
        limit_w = min(self.power.limit_w, self._cooled_w(mean_w, span))
        before = self.clock_ratio
        peak_w = self.power.peak_ratio * self.power.limit_w
        if mean_w > peak_w:
            while (
                self.clock_ratio > self.power.least_clock_ratio and self._at(mean_w, before, self.clock_ratio) > peak_w
            ):
                self.clock_ratio = max(self.power.least_clock_ratio, self.clock_ratio - self.power.step_ratio)
        elif self.average_w > self.power.limit_w or mean_w > limit_w < self.power.limit_w:
            self.clock_ratio = max(self.power.least_clock_ratio, before - self.power.step_ratio)
        elif before < 1 and self._at(mean_w, before, before + self.power.step_ratio) <= limit_w:
            self.clock_ratio = min(1.0, before + self.power.step_ratio)
        return self.clock_ratio != before

    def _cooled_w(self, mean_w: float, span_ps: int) -> float:
        """Follow the temperature, and return the power that holds it at its limit; no limit while it is cooler."""
        power = self.power
        if power.warming_celsius_per_w:
            rest = power.ambient_celsius + power.warming_celsius_per_w * mean_w
            self.celsius += (rest - self.celsius) * (1 - math.exp(-span_ps / power.warming_ps))
        self.temperatures.append(self.celsius)
        if not power.warming_celsius_per_w or self.celsius < power.limit_celsius - NEAR_CELSIUS:
            return math.inf
        return (power.limit_celsius - power.ambient_celsius) / power.warming_celsius_per_w

    def _rest_w(self) -> float:
        """Return the idle power at this temperature."""
        above = max(self.celsius - self.power.ambient_celsius, 0.0)
        return self.power.idle_w * (1 + self.power.leakage_ratio_per_celsius * above)

    def _at(self, mean_w: float, clock_ratio: float, other_ratio: float) -> float:
        """Return the power of the same work at another clock, if that bounds it."""
        volt = self.power.voltage_ratio(other_ratio) / self.power.voltage_ratio(clock_ratio)
        rest_w = self._rest_w()
        return rest_w + (mean_w - rest_w) * volt * volt * other_ratio / clock_ratio
