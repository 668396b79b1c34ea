"""A prediction: the time that good software is expected to reach, term by term, with an interval and its grounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.expected_energy import ExpectedEnergy


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One fitted scalar of a form."""

    name: str
    """What it is; the suffix is the unit."""
    value: float
    """Value used."""
    low_value: float
    """Least value that the fit may choose."""
    high_value: float
    """Largest value that the fit may choose."""
    identified: bool
    """False where the data did not pin the value down: it sits at a bound, or hardly matters to the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What libraries' choices of kernels add to a form: small trees whose leaves add up, bounded when they are used."""

    columns: tuple[str, ...] = field(repr=False)
    """Names of what the trees look at, see `predict._correction.columns_of`."""
    edges: tuple[tuple[float, ...], ...] = field(repr=False)
    """Ends of the ranges of each column, ascending, in the unit of the column."""
    splits: bytes = field(repr=False)
    """Column and border that each level of each tree asks about: whether the value is above it."""
    leaves: bytes = field(repr=False)
    """Signed bytes, the leaves of one tree after those of another: thousandths of a logarithm, halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The scalars of one form on one device and format, and where they come from."""

    name: str
    """Coefficient file and group, e.g. `h100_sxm gemm.bf16`."""
    coefficients: tuple[Coefficient, ...] = field(repr=False)
    """The scalars, in the order of the form."""
    low_ratio: Mapping[str, float]
    """Measured over predicted by regime: the low end of the 90 % interval."""
    high_ratio: Mapping[str, float]
    """Measured over predicted by regime: the high end of the 90 % interval."""
    row_count: int
    """Measurements behind the scalars."""
    source: str
    """Provenance of the measurements."""
    version: str
    """Version of the form that the scalars belong to."""
    distance_count: int = 0
    """Steps from the data: 0 this device, 1 its architecture or another format, 2 its maker's devices, 3 another's."""
    is_borrowed: bool = False
    """Whether the measurements are of other operators, whose form and scalars stand in for this one."""
    differing: tuple[str, ...] = ()
    """Figures by which the target is not the shipped device of its name, which is the one that was measured."""
    correction: Correction | None = None
    """Fitted on top of the scalars; none without."""
    scale: Correction | None = None
    """Trees that tell which cases are less sure: they multiply the logarithms of both ends; none: all alike."""
    apart_ratio: tuple[float, float] = (1.0, 1.0)
    """By what measurements of another source are faster and slower; added to both ends in squares of logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallTerm:
    """A named part of a predicted time."""

    name: str
    """What the time goes to."""
    time_s: float
    """Time of this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The expected time of one case, what it consists of, and how far to trust it."""

    time_s: float
    """Expected time; never below `bound_s`."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    terms: tuple[WaterfallTerm, ...]
    """Parts whose times add up to `time_s`."""
    limiter: str
    """Name of the largest part."""
    bound_s: float
    """Time that no algorithm of the kind `algorithm` can beat."""
    regime: str
    """Kind of case, by which the interval was measured: `launch`, `dram`, `l2`, `tensor`."""
    calibration: Calibration
    """Scalars used, with their provenance."""
    algorithm: str = "classical"
    """Algorithms that the bound admits, as in `Policy`: `any` where libraries use such as Winograd's."""
    notes: tuple[str, ...] = ()
    """What was assumed where the case leaves it open, a sentence each."""
    energy: ExpectedEnergy | None = None
    """Expected energy; none where no document states the power limit of the device."""

    @property
    def energy_j(self) -> float | None:
        """Expected energy, the board's idle power included; none where it is unknown."""
        return None if self.energy is None else self.energy.energy_j

    @property
    def power_w(self) -> float | None:
        """Expected average power; none where it is unknown."""
        return None if self.energy is None else self.energy.power_w

    @property
    def distance_count(self) -> int:
        """Steps from the data: 0 this device, 1 its architecture, 2 devices of its maker, 3 those of another maker."""
        return self.calibration.distance_count

    @property
    def waterfall_s(self) -> Mapping[str, float]:
        """Time by part."""
        return {term.name: term.time_s for term in self.terms}
