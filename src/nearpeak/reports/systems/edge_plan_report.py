"""Report of a plan over power modes: chosen mode, table of modes, what to measure next, what it rests on."""

import json
from collections.abc import Iterator

from nearpeak.core.edge.mode_plan import Estimate, ModeRow, PlannedEdge
from nearpeak.reports.brief_text import brief, ends, figure_of_three, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns


def to_json(planned: PlannedEdge) -> str:
    """Return the plan as one JSON line, with the headline's figures."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedEdge) -> Document:
    """Return the plan as a document; what it rests on is folded."""
    engine = ", ".join(filter(None, (planned.engine or "operators one by one", planned.execution)))
    blocks: list[Block] = [_table(planned)]
    blocks += _accelerators(planned)
    if planned.next_modes:
        blocks.append(Text(f"Measure next, most informative first: {', '.join(planned.next_modes)}."))
    blocks.append(Details("Bounds, clocks, and what each figure rests on (--why)", tuple(_why(planned))))
    limits = f", {'; '.join(planned.limits)}" if planned.limits else ""
    return Document(
        title=f"{planned.model}: power modes of {planned.board}",
        subject=f"{engine}, least {planned.objective}{limits}, power {planned.scope.title}",
        lead=_lead(planned), blocks=blocks, kicker="Edge plan", is_lead_first=True, figures=_figures(planned),
    )  # fmt: skip


def _lead(planned: PlannedEdge) -> str:
    """Return the answer in one or two sentences."""
    if not planned.chosen:
        nearest = planned.rows[0]
        return (
            f"No mode keeps the limits ({'; '.join(planned.limits)}); the fastest, {nearest.mode.name}, takes "
            f"{brief(nearest.time_s.value, 's')} a run."
        )
    best = planned.row(planned.chosen)
    words = [f"{best.mode.name}: {_rate(planned, best)} ({brief(best.time_s.value, 's')} a run)"]
    if best.power_w is not None and best.energy_j is not None:
        per_item = best.energy_j.value / planned.item_count
        words += [brief(best.power_w.value, "W"), f"{brief(per_item, 'J')} per {planned.item}"]
    return f"{', '.join(words)}. {_second(planned, best)}{_switch(planned)}"


def _accelerators(planned: PlannedEdge) -> Iterator[Block]:
    """Yield what the accelerators add to the device in the chosen mode."""
    row = planned.row(planned.chosen) if planned.chosen else planned.rows[0]
    if planned.dla_refusal:
        yield Text(f"No time on a DLA: {planned.dla_refusal}.")
    if planned.dla_count and row.dla_s is not None:
        rate = planned.item_count * (1 / row.time_s.value + planned.dla_count / row.dla_s.value)
        yield Text(
            f"{row.mode.name} with GPU and {planned.dla_count} DLAs side by side: {figure_of_three(rate)} "
            f"{planned.item}s/s, if the memory gives all of them their part."
        )
    elif planned.dla_count:
        yield Text(f"No document states the rate of a DLA in mode {row.mode.name}.")


def _rate(planned: PlannedEdge, row: ModeRow) -> str:
    return f"{figure_of_three(planned.item_count / row.time_s.value)} {planned.item}s/s"


def _second(planned: PlannedEdge, best: ModeRow) -> str:
    if not planned.runner_up:
        return "No other mode keeps the limits." if planned.limits else ""
    second = planned.row(planned.runner_up)
    first, other = (_objective(planned, row) for row in (best, second))
    if first is None or other is None:
        return ""
    gain = f"{whole_percent(other.value / first.value - 1)} more {planned.objective}"
    tail = "resolved" if planned.is_resolved else "not resolved: measure both"
    return f"Next is {second.mode.name}, {gain} ({tail})."


def _switch(planned: PlannedEdge) -> str:
    if planned.switch_idle_w is None:
        return ""
    return f" Another mode is best where the board draws {brief(planned.switch_idle_w, 'W')} at rest."


def _objective(planned: PlannedEdge, row: ModeRow) -> Estimate | None:
    return {"energy": row.energy_j, "time": row.time_s, "power": row.power_w}[planned.objective]


def _figures(planned: PlannedEdge) -> list[tuple[str, str, str]]:
    """Return the figures that a page shows large."""
    if not planned.chosen:
        return []
    best = planned.row(planned.chosen)
    rows = [("mode", best.mode.name, "chosen"), ("rate", _rate(planned, best), "")]
    if best.energy_j is not None:
        rows.append((f"per {planned.item}", brief(best.energy_j.value / planned.item_count, "J"), planned.scope.title))
    return rows


def _table(planned: PlannedEdge) -> Table:
    heads = columns(
        "mode", "#time_s|time", "#90 %", "#power_w|power", "#+90 % W", "#energy_j|energy", "#+90 % J",
        *(("#dla_s|one DLA", "#+90 %") if planned.dla_count else ()), "remark",
    )  # fmt: skip
    rows = []
    for row in planned.rows:
        power, energy = (_cells(figure, unit) for figure, unit in ((row.power_w, "W"), (row.energy_j, "J")))
        beside = _cells(row.dla_s, "s") if planned.dla_count else ()
        remarks = ", ".join(_remarks(planned, row))
        rows.append((row.mode.name, *_cells(row.time_s, "s"), *power, *energy, *beside, remarks))
    caption = "Power modes, fastest first; energy of a run" + (
        " and of the rest of its period" * bool(planned.period_s)
    )
    return Table(columns=heads, rows=rows, name="modes", caption=caption)


def _cells(figure: Estimate | None, unit: str) -> tuple[Cell, Cell]:
    if figure is None:
        return Cell(value=None, text="–"), Cell(value=None, text="–")
    value = Cell(value=figure.value, text=brief(figure.value, unit))
    return value, Cell(value=None, text=ends(figure.low, figure.high, figure.value, unit))


def _remarks(planned: PlannedEdge, row: ModeRow) -> Iterator[str]:
    if row.mode.name == planned.chosen:
        yield "chosen"
    elif row.mode.name == planned.runner_up:
        yield "second"
    if row.is_pareto:
        yield "Pareto"
    if row.is_measured:
        yield "measured"
    if not row.meets:
        yield "outside limits"


def _why(planned: PlannedEdge) -> Iterator[Block]:
    rows = []
    for row in planned.rows:
        mode = row.mode
        host = "–" if mode.host_count is None else f"{mode.host_count} × {brief(mode.host_clock_hz or 0, 'Hz')}"
        share = None if row.bound_s is None else row.bound_s / row.time_s.value
        rows.append((
            mode.name, row.bound_s, share, mode.clock_hz, mode.sm_count, mode.bandwidth_bytes_per_s, host,
            Cell(value=mode.budget_w, text="–" if mode.budget_w is None else brief(mode.budget_w, "W")),
        ))  # fmt: skip
    heads = columns("mode", "#bound_s|bound", "#share_ratio|bound / time", "#clock_hz|GPU", "#sms_count|SMs",
                    "#memory_bytes_per_s|memory", "host cores", "#budget")  # fmt: skip
    yield Table(
        columns=heads, rows=rows, name="bounds", caption="Time that nothing can beat, and the clocks of each mode"
    )
    for note in planned.notes:
        yield Text(note)
