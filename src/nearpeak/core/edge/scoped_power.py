"""Electric power with the place where it is measured: powers of different places are never added or compared."""

from dataclasses import dataclass
from enum import Enum

from nearpeak.errors import SpecError


class PowerScope(Enum):
    """Place of a meter on a board."""

    WALL = "wall"
    VDD_IN = "vdd_in"
    CPU_GPU_CV = "cpu_gpu_cv"

    @property
    def title(self) -> str:
        """Words for people."""
        return _TITLES[self]


_TITLES = {
    PowerScope.WALL: "at the wall, supply and carrier board included",
    PowerScope.VDD_IN: "module rail VDD_IN, without supply and carrier board",
    PowerScope.CPU_GPU_CV: "rail VDD_CPU_GPU_CV alone, without memory and the rest of the chip",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedPower:
    """A power and where it is measured.

    >>> board, rail = (ScopedPower(power_w=9.0, scope=scope) for scope in (PowerScope.WALL, PowerScope.VDD_IN))
    >>> (board + board).power_w, board.over(board)
    (18.0, 1.0)
    >>> board + rail
    Traceback (most recent call last):
    nearpeak.errors.SpecError: power: wall and vdd_in cannot be added or compared; measure both in one place, or state
    the efficiency of the supply
    """

    power_w: float
    """Mean power."""
    scope: PowerScope
    """Where it is measured."""

    def __add__(self, other: "ScopedPower") -> "ScopedPower":
        """Return the sum of two powers of one scope."""
        return ScopedPower(power_w=self.power_w + self._same(other).power_w, scope=self.scope)

    def __lt__(self, other: "ScopedPower") -> bool:
        """Return whether the power is less than another of the same scope."""
        return self.power_w < self._same(other).power_w

    def over(self, other: "ScopedPower") -> float:
        """Return the ratio to another power of the same scope."""
        return self.power_w / self._same(other).power_w

    def _same(self, other: "ScopedPower") -> "ScopedPower":
        if self.scope is not other.scope:
            raise SpecError(
                f"power: {self.scope.value} and {other.scope.value} cannot be added or compared; measure both in one "
                "place, or state the efficiency of the supply"
            )
        return other


def scope_of(text: str) -> PowerScope:
    """Return the scope of that name.

    >>> scope_of("VDD_IN")
    <PowerScope.VDD_IN: 'vdd_in'>
    """
    names = {scope.value: scope for scope in PowerScope}
    stated = names.get(text.strip().lower().removeprefix("vdd_cpu_gpu_cv") or "cpu_gpu_cv")
    if stated is None:
        raise SpecError(f"power scope {text!r}: is not one of {', '.join(names)}")
    return stated
