"""Values of engine coverage: verdicts on nodes, pieces, predicted plans, and changes that would help."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isclose
from typing import Any

from nearpeak.core.records.record_codec import Schema

SUPPORTED, CONDITIONAL, DENIED, UNKNOWN = "supported", "conditional", "denied", "unknown"
VERDICTS = (SUPPORTED, CONDITIONAL, DENIED, UNKNOWN)
"""Verdicts on a node; conditional and supported ones are planned as converted, the others as left outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Answer of a capability table to one node."""

    verdict: str
    """One of VERDICTS."""
    reason: str = ""
    """Why it is not plainly supported; empty where it is."""
    cure: str = ""
    """`fold` or `cast`, where that would make the node convertible; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNode:
    """One node of the file with its verdict."""

    key: str
    """Its name, or type and position among those of its type."""
    kind: str
    """Operator type, with its domain where that is not the standard's."""
    verdict: Verdict
    """Answer of the table."""
    is_static: bool = False
    """Whether its results are known when the engine is built, so that it is part of no piece."""
    flop: int = 0
    """Its arithmetic."""

    @property
    def is_taken(self) -> bool:
        """Whether it is planned as converted."""
        return self.verdict.verdict in (SUPPORTED, CONDITIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A predicted time, or a difference of two, with the ends of its 90 % interval."""

    low_s: float
    """Low end."""
    time_s: float
    """Expected."""
    high_s: float
    """High end."""

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(
            low_s=self.low_s + other.low_s, time_s=self.time_s + other.time_s, high_s=self.high_s + other.high_s
        )  # fmt: skip

    def times(self, factor: float) -> "Interval":
        """Return it `factor` times."""
        return Interval(low_s=self.low_s * factor, time_s=self.time_s * factor, high_s=self.high_s * factor)

    def less(self, other: "Interval") -> "Interval":
        """Return the difference where both err the same way: their common parts cancel.

        >>> Interval(low_s=2.0, time_s=3.0, high_s=5.0).less(Interval(low_s=1.0, time_s=1.5, high_s=4.0))
        Interval(low_s=1.0, time_s=1.5, high_s=1.5)

        Sums of the same parts in another order are equal: a difference of rounding is none.
        >>> Interval(low_s=0.1 + 0.2, time_s=1.0, high_s=2.0).less(Interval(low_s=0.3, time_s=1.0, high_s=2.0)).low_s
        0.0
        """
        pairs = ((self.low_s, other.low_s), (self.time_s, other.time_s), (self.high_s, other.high_s))
        differences = [0.0 if isclose(mine, its, rel_tol=1e-9) else mine - its for mine, its in pairs]
        return Interval(low_s=min(differences), time_s=differences[1], high_s=max(differences))


NOTHING = Interval(low_s=0.0, time_s=0.0, high_s=0.0)
"""No time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTime:
    """Predicted time of one run of the model in a given split."""

    total: Interval
    """The run: the slower of device and host where the host runs ahead, else their sum."""
    engine: Interval
    """Device time of the converted pieces."""
    left: Interval
    """Device time of the nodes outside of them, unfused."""
    border: Interval
    """Device time of copies at borders."""
    host: Interval
    """Host time of starting pieces and calls."""
    piece_count: int
    """Converted pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginAnswer:
    """What a plug-in for one kind of operator would change on one device."""

    kind: str
    """Operator type."""
    node_count: int
    """Nodes of this kind that are left."""
    plan: PlanTime
    """The run with these nodes inside engines, each as a kernel of its own."""
    gain: Interval
    """What it saves against the file as it is."""
    call_s: float
    """Predicted time of one of its kernels."""
    bound_s: float
    """Time that no kernel for one of these nodes can beat; on average over the nodes."""
    break_even_s: float | None
    """Time of a kernel at which nothing is gained; none where no kernel is fast enough."""
    verdict: str
    """`pays`, `does not pay` or `open`, against the gain that was asked for."""
    recovered_ratio: float | None
    """Share that it recovers of what is lost against everything converted; none where nothing is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """Predicted plans of the model on one device."""

    target: str
    """Name of the device."""
    as_is: PlanTime
    """The file as it is."""
    whole: PlanTime
    """Everything converted into one engine."""
    refused: PlanTime | None
    """As it is, with conditional nodes outside too; none where there are none."""
    plugins: tuple[PluginAnswer, ...]
    """One answer for each kind that is left, the largest gain first."""
    pieces: tuple[Interval, ...]
    """Time of each piece, in the order of `EngineCoverage.pieces`."""
    unpredicted: Mapping[str, int]
    """Nodes whose time is in no figure, by operator type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePiece:
    """Nodes that run together, inside the engine or outside."""

    is_converted: bool
    """Whether they form an engine."""
    keys: tuple[str, ...]
    """Keys of the nodes."""
    kinds: Mapping[str, int]
    """Nodes by operator type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the file or of the conversion, with what it saves."""

    kind: str
    """`opset`, `fold`, `cast`, `plug-in`, `least` or `inline`."""
    text: str
    """What to do, and to which nodes."""
    gains: Mapping[str, Interval]
    """Saved time of a run by target; empty where it is not priced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """What the nodes of one stretch outside of the engine cost against having them inside."""

    keys: tuple[str, ...]
    """Keys of the nodes."""
    costs: Mapping[str, Interval]
    """Cost of the break by target: time saved if just these nodes were converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCoverage:
    """What an engine that need not be installed takes of a model, and what the breaks cost."""

    model: str
    """File of the model."""
    engine: str
    """Engine with its version."""
    source: str
    """Where the capability table comes from."""
    opset: str
    """Operator set of the file."""
    nodes: tuple[JudgedNode, ...]
    """All nodes of the file, in its order."""
    pieces: tuple[EnginePiece, ...]
    """Pieces in an order in which they can run."""
    boundary_count: int
    """Tensors that cross between engines and the rest."""
    boundary_bytes: int | None
    """Their bytes, each counted once; none where a size is unknown."""
    plans: tuple[TargetPlan, ...]
    """Predictions by target."""
    breaks: tuple[Break, ...]
    """Stretches outside of engines, the dearest first."""
    changes: tuple[Change, ...]
    """What to change, the largest gain first."""
    notes: tuple[str, ...] = ()
    """What restricts the answer."""

    def counts(self) -> Mapping[str, int]:
        """Return the nodes by verdict."""
        return Counter(node.verdict.verdict for node in self.nodes)

    @property
    def taken_count(self) -> int:
        """Nodes inside engines, or known when the engine is built."""
        inside = {key for piece in self.pieces if piece.is_converted for key in piece.keys}
        return sum(node.key in inside or (node.is_static and node.is_taken) for node in self.nodes)

    @property
    def flop_ratio(self) -> float | None:
        """Share of the arithmetic inside engines; none where no arithmetic is known."""
        inside = {key for piece in self.pieces if piece.is_converted for key in piece.keys}
        total = sum(node.flop for node in self.nodes)
        return sum(node.flop for node in self.nodes if node.key in inside) / total if total else None

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return ENGINE_COVERAGE.head() | asdict(self) | {
            "counts": dict(self.counts()), "taken_count": self.taken_count, "flop_ratio": self.flop_ratio,
        }  # fmt: skip


ENGINE_COVERAGE = Schema(
    kind="nearpeak engine coverage", version=1, title="saved engine coverage",
    advice="write it with nearpeak coverage --engine … --json",
)  # fmt: skip
"""Kind and version of saved coverage."""
