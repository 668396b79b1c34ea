"""Conversion coverage of one model on one runner: converted nodes, fallbacks, and times of the pieces."""

from dataclasses import dataclass

from nearpeak.core.runs.measurement import Fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A model on a runner; everything that stays behind stands in the ledger."""

    model: str
    """File of the model."""
    runner: str
    """Runner that converts it."""
    node_count: int
    """Nodes, or calls of operators, of the model."""
    converted_count: int
    """Those that the runner takes."""
    fragment_count: int
    """Pieces that the converted ones fall into; 1 when everything converts."""
    boundary_count: int
    """Tensors that cross from a piece to what stays behind, or back."""
    boundary_bytes: int | None
    """Their bytes, each counted once; none where those of one are not known."""
    boundary_s: float | None
    """Time of copying these bytes once on this machine; none where nothing was timed."""
    converted_s: float | None
    """Time of one run as converted; none where it does not run by itself or nothing was timed."""
    unconverted_s: float | None
    """Time of one run without conversion, for the same inputs; none likewise."""
    pieces_s: float | None = None
    """Time of running the pieces one after the other, what stays behind between them where it can run; none where
    nothing was timed."""
    pieces_error_ratio: float | None = None
    """Largest difference of results in pieces to those of the whole, over the largest result; none where one of the
    two does not run."""
    placed: tuple[tuple[str, int], ...] = ()
    """Nodes by the provider that runs them, as the runtime partitioned the whole model; it may have fused some."""
    ledger: tuple[Fallback, ...]
    """What stays behind, with its share of arithmetic and time where they are known."""

    @property
    def flop_ratio(self) -> float | None:
        """Share of the arithmetic that is converted; none where the ledger does not say it."""
        shares = [row.flop_ratio for row in self.ledger if not row.chosen]
        return None if None in shares else 1.0 - sum(share for share in shares if share is not None)
