"""Answer of a plan over the power modes of a board: times, powers and energies, their bounds, and the choice."""

from dataclasses import dataclass
from typing import Any

from nearpeak.core.edge.board_mode import BoardMode
from nearpeak.core.edge.scoped_power import PowerScope
from nearpeak.core.records.record_codec import Codec

_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An expected figure with its 90 % interval."""

    value: float
    """Expected figure, in the unit of its field."""
    low: float
    """Low end."""
    high: float
    """High end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow:
    """One power mode in a plan."""

    mode: BoardMode
    """The mode."""
    time_s: Estimate
    """Time of one run of the model."""
    power_w: Estimate | None
    """Mean power while it runs; none where nothing tells it."""
    energy_j: Estimate | None
    """Energy of one run, or of one period where the job has one: idle time is then counted."""
    bound_s: float | None
    """Time that nothing can beat in this mode."""
    is_measured: bool
    """Whether the mode itself was measured."""
    is_pareto: bool
    """Whether no other mode is both faster and draws less power."""
    meets: bool
    """Whether the mode keeps the limits that are asked for."""
    dla_s: Estimate | None = None
    """Time of one run on one deep-learning accelerator; none where it is not asked for, or no document states its rate
    in this mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEdge:
    """The power modes of a board for a model."""

    model: str
    """Model."""
    board: str
    """Target of the board."""
    engine: str
    """Inference engine; empty where operators run one by one."""
    scope: PowerScope
    """Where power is measured."""
    item_count: int
    """Items of one run."""
    item: str
    """Word for an item, such as image."""
    rows: tuple[ModeRow, ...]
    """All modes, fastest first."""
    objective: str
    """Minimised figure: `energy`, `time` or `power`."""
    limits: tuple[str, ...]
    """Limits in words."""
    chosen: str
    """Name of the chosen mode; empty where none keeps the limits."""
    runner_up: str
    """Name of the second; empty where there is none."""
    is_resolved: bool
    """Whether chosen and second differ beyond the error that they do not share."""
    next_modes: tuple[str, ...] = ()
    """Modes whose measurement says most, in order."""
    notes: tuple[str, ...] = ()
    """What the figures rest on, a sentence each."""
    idle_w: float = 0.0
    """Power at rest of the board, for a job with a period."""
    period_s: float = 0.0
    """Time from one run to the next; 0 where runs follow one another."""
    switch_idle_w: float | None = None
    """Power at rest at which another mode becomes the best; none where none does."""
    dla_count: int = 0
    """Accelerators of the board, where they are asked for."""
    dla_refusal: str = ""
    """Why the time on an accelerator is not known, where it was asked for."""
    execution: str = ""
    """Execution mode of the times, one of MODES."""

    def row(self, name: str) -> ModeRow:
        """Return the row of a mode by its name."""
        return next(row for row in self.rows if row.mode.name == name)

    def record(self) -> dict[str, Any]:
        """Return the plan as plain data, with the headline's figures."""
        raw: dict[str, Any] = _RECORDS.plain(self)
        if self.chosen:
            best = self.row(self.chosen)
            raw["items_per_s"] = self.item_count / best.time_s.value
            raw["joules_per_item"] = None if best.energy_j is None else best.energy_j.value / self.item_count
        return raw
