"""Executed precision of a trace: formats and units of its products against the expected ones."""

from dataclasses import dataclass
from typing import NamedTuple

from nearpeak.core.traces.shortfall import Shortfall

MODES = {
    "fp32": "fp32 on fp32 units",
    "tf32": "fp32 rounded to TF32",
    "default": "fp32, partly rounded to TF32",
    "autocast": "autocast",
    "converted": "converted as a whole, without autocast",
    "unknown": "not known",
}
"""How the products of a step ran; the first three are what `BASELINES` of an expectation name."""


class ProductUse(NamedTuple):
    """All products of one format on one kind of unit; figures of a step."""

    inputs: str
    """Format of the first tensor; empty where it was not recorded."""
    unit: str
    """`tensor`, `tf32`, `vector`, or empty where the kernels' names do not tell."""
    call_count: float
    """Launches of kernels."""
    time_ns: float
    """Their time."""
    flop: float
    """Their FLOP, of operators whose case is known."""


class CastUse(NamedTuple):
    """Casts from one format to another; figures of a step."""

    before: str
    """Format that is read."""
    after: str
    """Format that is written."""
    cast_count: float
    """Casts that ran."""
    time_ns: float
    """Their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedPrecision:
    """The precision in which a trace's products ran."""

    name: str
    """Trace."""
    mode: str
    """One of MODES."""
    format: str
    """16-bit format of `autocast` and `converted`; empty otherwise."""
    reason: str
    """What the mode was told from."""
    conflict: str
    """Where settings that the trace states and names of kernels disagree; empty where they do not."""
    products: tuple[ProductUse, ...]
    """Products that matrix units can form, most time first."""
    unused: tuple[tuple[str, float], ...]
    """Products that ran on vector units although matrix units take them: operator, nanoseconds of a step."""
    casts: tuple[CastUse, ...]
    """Casts, most time first."""
    compiled_ratio: float
    """Part of the kernels' time in kernels that a compiler wrote, which hide casts and calls."""

    def _share(self, *, by_flop: bool) -> float | None:
        known = [product for product in self.products if product.inputs]
        weights = [product.flop if by_flop else product.time_ns for product in known]
        total = sum(weights)
        low = sum(
            weight for product, weight in zip(known, weights, strict=True) if product.inputs not in ("fp32", "fp64")
        )
        return low / total if total else None

    @property
    def lowered_flop_ratio(self) -> float | None:
        """Return the part of the products' FLOP with inputs of at most 16 bits; none where no case is known."""
        return self._share(by_flop=True)

    @property
    def lowered_time_ratio(self) -> float | None:
        """Return the part of the products' time with inputs of at most 16 bits; none where no format is known."""
        return self._share(by_flop=False)

    @property
    def matrix_unit_ratio(self) -> float | None:
        """Return the part of the products' time on matrix units, of kernels whose names tell; none where none does."""
        known = [product for product in self.products if product.unit]
        total = sum(product.time_ns for product in known)
        return sum(product.time_ns for product in known if product.unit != "vector") / total if total else None

    @property
    def cast_count(self) -> float:
        """Return the casts of a step."""
        return sum(cast.cast_count for cast in self.casts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """How much of an expected speed-up two traces show; a reason instead where nothing can be told."""

    baseline: str
    """Which fp32 the baseline ran: one of BASELINES; empty where that is not known."""
    expected_ratio: float | None
    """Expected speed-up against that baseline."""
    speed_up_ratio: float | None
    """Step of the baseline over step under autocast."""
    low_ratio: float | None
    """Low end of its 95 % interval; none where steps are too few."""
    high_ratio: float | None
    """High end."""
    realised_ratio: float | None
    """(executed - 1) / (expected - 1)."""
    log_ratio: float | None
    """Logarithm of the executed over logarithm of the expected speed-up."""
    reason: str
    """Why something of this is withheld; empty where nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionGap:
    """A trace beside the step that was expected to run."""

    executed: ExecutedPrecision
    """The case that ran."""
    against: str
    """What was expected: `lowered`, `converted` or `written`, chosen by the mode of the trace."""
    expected_cast_count: int
    """Casts of an expected step."""
    shortfall: Shortfall
    """Executed less expected time by cause; the parts add up to it."""
    matched_ratio: float
    """Part of the expected calls that the trace shows."""
    realised: Realised | None = None
    """Speed-up against a baseline's trace; none without one."""
    base: Shortfall | None = None
    """The same terms of the baseline's trace against its own expectation; none without one."""
    reason: str = ""
    """Why little can be concluded from the terms; empty where nothing speaks against them."""
