"""A predicted time of a case: its parts, its 90 % interval and the provenance of its coefficients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nearpeak.core.answers.expected_energy import ExpectedEnergy
from nearpeak.core.answers.notebook_display import html_of

SOFTWARE, BEST_SOFTWARE = ("vllm", "trtllm", "sglang", "pytorch"), "best"
"""Frameworks whose times may be asked for, and the name of the best of all measured; operators, formats and devices
differ in which of them have data.
"""
ROUNDING_RATIO = 1e-12
"""Share of a time below which a part is what differences of others leave over."""
BURST = "bursts: milliseconds of such work on a board that has rested, as tables are measured"
"""What predictions of cases hold for unless sustained ones are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One fitted coefficient of a model."""

    name: str
    """Name; the suffix is the unit."""
    value: float
    """Value used."""
    low_value: float
    """Least value that the fit may choose."""
    high_value: float
    """Largest value that the fit may choose."""
    identified: bool
    """False where the data do not identify the value: it is at a bound, or has hardly any effect on the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Residual correction for libraries' kernel choices: small trees whose leaves add up to a bounded factor."""

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
    """The coefficients of one model on one device and format, and where they come from."""

    name: str
    """Coefficient file and group, e.g. `h100_sxm gemm.bf16`."""
    coefficients: tuple[Coefficient, ...] = field(repr=False)
    """The coefficients, in the order of the model."""
    low_ratio: Mapping[str, float]
    """Measured over predicted by regime: the low end of the 90 % interval."""
    high_ratio: Mapping[str, float]
    """Measured over predicted by regime: the high end of the 90 % interval."""
    row_count: int
    """Measurements behind the coefficients."""
    source: str
    """Provenance of the measurements."""
    version: str
    """Version of the model that the coefficients belong to."""
    distance_count: int = 0
    """Steps from the data: 0 this device, 1 its architecture or another format, 2 its maker's devices, 3 another's."""
    is_borrowed: bool = False
    """Whether model and coefficients are those of other, measured operators."""
    differing: tuple[str, ...] = ()
    """Figures by which the target is not the shipped device of its name, which is the one that was measured."""
    correction: Correction | None = None
    """Fitted on top of the coefficients; none without."""
    scale: Correction | None = None
    """Trees that scale the interval by case: they multiply the logarithms of both ends; none: equal widths."""
    apart_ratio: tuple[float, float] = (1.0, 1.0)
    """By what measurements of another source are faster and slower; added to both ends in squares of logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallTerm:
    """A named part of a predicted time."""

    name: str
    """Cause of the time."""
    time_s: float
    """Time of this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The common part of many cases' predictions: everything but their figures."""

    calibration: Calibration
    """Coefficients used, with their provenance."""
    part_names: tuple[str, ...]
    """Name of each part of a time."""
    algorithm: str = "classical"
    """Algorithms that the bound admits, as in `Policy`: `any` where libraries use such as Winograd's."""
    notes: tuple[str, ...] = ()
    """Assumptions about unstated quantities, a sentence each."""
    holds_for: str = BURST
    """Duration and duty that the time holds for."""
    drawn: Callable[[tuple[float, ...], tuple[float, float, float]], ExpectedEnergy] | None = field(
        default=None, compare=False, repr=False
    )
    """Gives the energy by what keeps units busy, a time and both ends of its interval; none where no document states
    the power limit of the device.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The expected time of one case, what it consists of, and how far to trust it."""

    time_s: float
    """Expected time; never below `bound_s`."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    bound_s: float
    """Time that no algorithm of the kind `algorithm` can beat."""
    regime: str
    """Kind of case, by which the interval was measured: `launch`, `dram`, `l2`, `tensor`."""
    parts_s: tuple[float, ...]
    """Parts that add up to `time_s`, named in `provenance`, zeros included."""
    busy: tuple[float, ...]
    """Busy time of each unit, from which energy follows, see `unit_activity.Busy`; empty if unknown."""
    provenance: Provenance
    """Coefficients, notes and energy model behind it."""

    @property
    def terms(self) -> tuple[WaterfallTerm, ...]:
        """Parts of the time, without rounding residues."""
        each, least_s = zip(self.provenance.part_names, self.parts_s, strict=True), ROUNDING_RATIO * self.time_s
        terms = tuple(WaterfallTerm(name=name, time_s=part_s) for name, part_s in each if abs(part_s) > least_s)
        return terms or (WaterfallTerm(name=self.limiter, time_s=self.time_s),)

    @property
    def limiter(self) -> str:
        """Name of the largest part."""
        return self.provenance.part_names[self.parts_s.index(max(self.parts_s))]

    @property
    def energy(self) -> ExpectedEnergy | None:
        """Expected energy; none where no document states the power limit of the device."""
        drawn = self.provenance.drawn
        return None if drawn is None else drawn(self.busy, (self.time_s, self.low_s, self.high_s))

    @property
    def calibration(self) -> Calibration:
        """Coefficients used, with their provenance."""
        return self.provenance.calibration

    @property
    def algorithm(self) -> str:
        """Algorithms that the bound admits: `classical`, or `any` where libraries use such as Winograd's."""
        return self.provenance.algorithm

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions about unstated quantities, a sentence each."""
        return self.provenance.notes

    @property
    def energy_j(self) -> float | None:
        """Expected energy, the board's idle power included; none where it is unknown."""
        energy = self.energy
        return None if energy is None else energy.energy_j

    @property
    def power_w(self) -> float | None:
        """Expected average power; none where it is unknown."""
        energy = self.energy
        return None if energy is None else energy.power_w

    @property
    def distance_count(self) -> int:
        """Steps from the data: 0 this device, 1 its architecture, 2 devices of its maker, 3 those of another maker."""
        return self.provenance.calibration.distance_count

    @property
    def waterfall_s(self) -> Mapping[str, float]:
        """Time by part."""
        return {term.name: term.time_s for term in self.terms}

    @property
    def holds_for(self) -> str:
        """Duration and duty that the time holds for: bursts, or seconds of work at a clock that power allows."""
        return self.provenance.holds_for

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return html_of(self)
