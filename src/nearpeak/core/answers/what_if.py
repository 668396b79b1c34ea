"""Records of what-if answers: simulated time, energy and die area of a step on a device with edited figures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A step on one edited device."""

    edits: tuple[str, ...]
    """Edits as `--set` takes them."""
    time_s: float
    """Simulated time of the modelled calls of the step."""
    time_ratio: float
    """Of the time on the device as it is, over the calls that are modelled on both."""
    area_ratio: float
    """Area of the die, of that of the device as it is: a proxy by the shares that figures are taken to have of it."""
    energy_j: float | None = None
    """Energy of these calls; none where no document states what the device may draw."""
    energy_ratio: float | None = None
    """Of the energy on the device as it is."""
    unmodelled_count: int = 0
    """Calls of the step that are not in time and energy, as the simulator does not model them."""
    is_best: bool = False
    """Whether no other is at least as good in time, energy and area, and better in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """A step with one figure of the device changed alone."""

    name: str
    """Figure, as `--set` names it."""
    less: WhatIf
    """With the figure divided by the factor."""
    more: WhatIf
    """With the figure times the factor."""

    def gain_ratio(self) -> float:
        """Return the share of the time that more of it saves."""
        return 1 - self.more.time_ratio

    def swing_ratio(self) -> float:
        """Return the range of the time between less and more of it, relative to the unchanged time."""
        return abs(self.less.time_ratio - self.more.time_ratio)
