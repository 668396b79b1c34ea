"""Conversion coverage of one model on one runner: converted nodes, fallbacks, and times of the pieces."""

from dataclasses import dataclass

from nearpeak.core.runs.measurement import Fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Conversion coverage of a model on a runner, with a ledger of the nodes that are not converted."""

    model: str
    """File of the model."""
    runner: str
    """Runner that converts it."""
    node_count: int
    """Nodes, or operator calls, of the model."""
    converted_count: int
    """Nodes that the runner converts."""
    fragment_count: int
    """Pieces that the converted nodes form; 1 when everything converts."""
    boundary_count: int
    """Tensors that cross between converted and unconverted nodes."""
    boundary_bytes: int | None
    """Their bytes, each counted once; none where a size is unknown."""
    boundary_s: float | None
    """Time of copying these bytes once on this machine; none where nothing was timed."""
    converted_s: float | None
    """Time of one converted run; none where it does not run as a whole or nothing was timed."""
    unconverted_s: float | None
    """Time of one run without conversion, for the same inputs; none likewise."""
    pieces_s: float | None = None
    """Time of running the pieces in sequence, with the unconverted nodes where they can run; none where nothing was
    timed."""
    pieces_error_ratio: float | None = None
    """Largest difference between results of pieces and whole, over the largest result; none where one of them does not
    run."""
    placed: tuple[tuple[str, int], ...] = ()
    """Nodes by execution provider, as the runtime partitioned the whole model; some may be fused."""
    executed: tuple[tuple[str, int, float | None], ...] = ()
    """Number formats in which products are formed after the runtime's rewrites: name, products, share of the
    multiply-adds, none where unknown; empty where the runtime does not show its graph."""
    loose_count: int = 0
    """Quantisations and dequantisations that the runtime left as passes of their own."""
    ledger: tuple[Fallback, ...]
    """Unconverted nodes, with their share of FLOP and time where known."""

    @property
    def flop_ratio(self) -> float | None:
        """Share of the FLOP that is converted; none where the ledger does not state it."""
        shares = [row.flop_ratio for row in self.ledger if not row.chosen]
        return None if None in shares else 1.0 - sum(share for share in shares if share is not None)
