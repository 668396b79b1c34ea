"""A lower bound of a case's time: its terms, the limiter and the assumptions that it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.answers.notebook_display import html_of
from nearpeak.errors import SpecError

ALGORITHM_POLICIES = ("classical", "any")
DTYPE_POLICIES = ("strict", "tf32", "hard")
STRICT_DTYPES = ("strict",)
"""Policies under which what is kept on chip is as wide as it is stored."""
PROVED = "proved"
MODEL = "model"

TERMS = (
    "dram", "l2", "matrix", "capacity", "ingress", "barrier", "link", "host", "depth", "vector", "special", "latency",
)  # fmt: skip
"""Names of all terms; of equally large ones the first is called the limiter."""

ASSUMPTIONS: Mapping[str, str] = {
    "A1": "tensor values, masks that data decide among them, are unknown: no credit for zeros, symmetry or the like",
    "A2": "classical algorithms: no Winograd, FFT or Strassen",
    "A3": "the dtype policy says which units may form the products",
    "A4": "inputs start in device memory, not in a cache",
    "A5": "outputs may stay in the last shared cache when the clock stops, so that much of them is not charged",
    "A6": "no hardware memory compression",
    "A7": "dense peaks at the highest permitted clock, no structured sparsity",
    "A8": "values are finite, so that x - x is 0 and a comparison has an answer",
    "A9": "index values are unknown: a gather is charged one row, not one row per index",
    "A10": "the calls are those of the values that capture was given or guessed; for others they may differ",
    "A11": "products are formed on one kind of unit at a time, not on two at once",
    "A12": "the roofs were measured on this machine, so terms are as good as that measurement",
    "A13": "an operator that something later depends on is evaluated on its whole result, unless a rewrite narrows it",
    "A14": "what a kernel can hold on chip is the last cache, registers, shared and tensor memory of the device file",
    "A15": "links carry their documented rate in both directions at once, all links of a device together",
    "A16": "traffic with the host takes the device's own host link",
    "A17": "switches between devices may add up and multicast what passes through them",
    "A18": "real arithmetic: sums may be formed in any order, and intermediate results need not be rounded",
    "A19": "products by any bilinear algorithm, Winograd, Strassen and FFT among them; their additions are not counted",
    "A20": "no target of a loss is the class that it ignores",
}
"""Assumptions of bounds, by identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Time that one resource needs at least."""

    name: str
    """Resource: one of TERMS."""
    time_s: float
    """Time of this term alone."""
    status: str
    """`proved`, or `model` where an argument is missing; only proved terms set the bound."""
    formula: str = ""
    """Formula of the time from work and target, for readers."""
    expression: str = ""
    """The same over `quantities`, which `nearpeak.bounds.proof_checker.verify` evaluates."""
    quantities: Mapping[str, float] = field(default_factory=dict)
    """Figures that the expression uses; the suffix is the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Ends of a bound that depends on values, such as indices, that are not given."""

    low_s: float
    """Bound for any values, which nearpeak reports."""
    high_s: float
    """Bound for the values that cost most."""
    axes: tuple[str, ...]
    """Axes that describe the values; stating them makes the bound exact."""
    assumption: str = "A9"
    """Identifier of what the low end rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """An algebraic identity that the `simplified` engine used."""

    name: str
    """Rewrite, a file of theory/simplify/rewrites."""
    text: str
    """Statement."""
    where: str = ""
    """Source line or module that it concerns; empty when several."""
    count: int = 1
    """Number of applications there."""
    before_flop: int = 0
    """FLOP of the linear maps concerned before it; 0 when it concerns none."""
    after_flop: int = 0
    """FLOP of what took their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The largest proved term, with all other terms and premises."""

    time_s: float
    """Time nothing can beat."""
    limiter: str
    """Name of the term that sets it."""
    terms: tuple[Term, ...]
    """All terms."""
    roofline_s: float
    """Plain roofline at the documented rates, all bytes charged: not proved, for comparison."""
    launch_floor_s: float | None
    """Least time of the launches, never part of the bound; none when not documented."""
    assumptions: tuple[str, ...]
    """Identifiers of ASSUMPTIONS."""
    uncovered: Mapping[str, int] = field(default_factory=dict)
    """Calls without a rule, by name: with any, the bound is a lower estimate (≥)."""
    interval: Interval | None = None
    """Ends of the bound where it depends on values that are not given."""
    summed: bool = False
    """True for a list of cases: `time_s` is the sum of their bounds and not the largest of `terms`."""
    as_written_s: float | None = None
    """Bound of the step as written, where rewriting it algebraically lowers the bound; none elsewhere."""
    rewrites: tuple[Rewritten, ...] = ()
    """Rewrites, largest gain first; empty where the bound is that of the step as written."""

    @property
    def terms_s(self) -> Mapping[str, float]:
        """Time by term."""
        return {term.name: term.time_s for term in self.terms}

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return html_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the bound allows a program to do."""

    dtype: str = "strict"
    """`strict` (as accurate as declared), `tf32` (fp32 products may round to TF32), `hard` (any unit)."""
    algorithm: str = "classical"
    """`classical` (products by their definition) or `any` (Winograd, Strassen, FFT and every other bilinear one)."""
    output_credit: bool = True
    """Whether outputs may stay in the last shared cache."""
    cold_inputs: bool = True
    """Whether inputs start in device memory; if not, as much as the last shared cache holds is not charged."""
    switch_reduction: bool = True
    """Whether switches between devices may add up and multicast; if not, devices send every copy themselves."""

    def __post_init__(self) -> None:
        """Refuse a policy that does not exist."""
        if self.algorithm not in ALGORITHM_POLICIES:
            known = ", ".join(ALGORITHM_POLICIES)
            raise SpecError(f"policy: algorithm policy {self.algorithm!r} is not known; there are {known}")
        if self.dtype not in DTYPE_POLICIES:
            raise SpecError(f"policy: dtype policy {self.dtype!r} is not known; there are {', '.join(DTYPE_POLICIES)}")
