"""Multiprocessor activity over time: one drawing per run, as rectangles or, for many kernels, a heat map."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from nearpeak.core.answers.simulation import Batch, Run
from nearpeak.reports.document import Drawing
from nearpeak.reports.document.html import COLOURS, ends, keys, safe
from nearpeak.units import show

_MOST_RECTANGLES = 4_000
"""Pieces of a drawing; of more, a heat map is drawn."""
_COLUMNS, _LEVELS = 240, 8
"""Times and depths of colour of a heat map."""
_MOST_REPEATS = 200


def drawing_of(run: Run, sm_count: int, title: str = "") -> Drawing:
    """Return the drawing of a run with its key and axes: multiprocessors downwards, time to the right.

    Args:
        sm_count: multiprocessors of the device.
        title: heading above it.
    """
    return Drawing(title, partial(_drawn, run, sm_count))


def _drawn(run: Run, sm_count: int) -> str:
    colours = {kind: COLOURS[min(place, len(COLOURS) - 1)] for place, kind in enumerate(_kinds(run))}
    pieces = sum(min(batch.repeat_count, _MOST_REPEATS) for batch in run.batches)
    exact = pieces <= _MOST_RECTANGLES
    drawn = _rectangles(run, sm_count, colours) if exact else _cells(run, sm_count, colours)
    how = "each piece is a set of thread blocks" if exact else "the deeper the colour, the larger the busy share"
    label = f"{show(run.end_ps / 1e12, 's')}; rows are multiprocessors 0 to {sm_count - 1}, time goes right, {how}"
    return (
        f"<p>{label}</p>{keys(list(colours.items()))}"
        f'<svg class="drawing map" viewBox="0 0 1000 {sm_count}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{"".join(drawn)}</svg>'
        f"{ends('0 s', show(run.end_ps / 2e12, 's'), show(run.end_ps / 1e12, 's'))}{_power(run)}"
    )


def _power(run: Run) -> str:
    """Return power, clock and temperature over time, where a governor set the clock."""
    if len(run.governed) < 2:
        return ""
    most = max(watt for _, watt, _ in run.governed)
    curves = [("power", COLOURS[4], [watt / most for _, watt, _ in run.governed], f"up to {show(most, 'W')}"),
              ("clock", COLOURS[0], [clock for *_, clock in run.governed], "of the highest")]  # fmt: skip
    if run.heat_celsius:
        hottest = max(run.heat_celsius)
        curves.append(
            ("temperature", COLOURS[1], [celsius / hottest for celsius in run.heat_celsius], f"up to {hottest:.0f} °C")
        )
    step = max(1, len(run.governed) // 500)
    lines = []
    for _, colour, values, _ in curves:
        points = " ".join(
            f"{1000 * run.governed[i][0] / run.end_ps:.1f},{100 - 96 * values[i]:.1f}"
            for i in range(0, len(values), step)
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
            'vector-effect="non-scaling-stroke"/>'
        )
    named = [(f"{name}, {what}", colour) for name, colour, _, what in curves]
    return (
        f'{keys(named)}<svg class="drawing" style="height:130px" viewBox="0 0 1000 100" preserveAspectRatio="none" '
        f'role="img" aria-label="power and clock over time">{"".join(lines)}</svg>'
    )


def _kinds(run: Run) -> Mapping[str, str]:
    """Return the coloured groups: streams, or kernels by name if there is one stream; the longest first."""
    by_queue = len({span.queue for span in run.spans}) > 1
    totals: dict[str, int] = {}
    for span in run.spans:
        kind = _kind(span.name, span.queue, by_queue=by_queue)
        totals[kind] = totals.get(kind, 0) + span.slot_ps
    order = sorted(totals, key=lambda kind: -totals[kind])
    shown = order if len(order) <= len(COLOURS) else [*order[: len(COLOURS) - 1], "others"]
    return dict.fromkeys(shown, "")


def _kind(name: str, queue: str, *, by_queue: bool) -> str:
    return queue if by_queue else name.partition(" ")[2] or name


def _colour_of(run: Run, colours: Mapping[str, str]) -> Mapping[str, str]:
    """Return the colour of each kernel."""
    by_queue = len({span.queue for span in run.spans}) > 1
    kinds = {span.name: _kind(span.name, span.queue, by_queue=by_queue) for span in run.spans}
    return {name: colours.get(kind, COLOURS[-1]) for name, kind in kinds.items()}


def _rectangles(run: Run, sm_count: int, colours: Mapping[str, str]) -> Iterator[str]:
    """Yield one rectangle for each row of neighbouring multiprocessors of each batch."""
    colour_of = _colour_of(run, colours)
    for batch in run.batches:
        for start_ps, end_ps in _times(batch):
            for first, count in stretches(batch.sms, sm_count):
                wide = max(1000 * (end_ps - start_ps) / run.end_ps - 0.4, 0.4)
                yield (
                    f'<rect x="{1000 * start_ps / run.end_ps:.2f}" y="{first + 0.05:.2f}" width="{wide:.2f}" '
                    f'height="{count - 0.1:.1f}" fill="{colour_of[batch.name]}"><title>{safe(batch.name)}: '
                    f"{show(start_ps / 1e12, 's') if start_ps else '0 s'} to {show(end_ps / 1e12, 's')}</title></rect>"
                )


def _cells(run: Run, sm_count: int, colours: Mapping[str, str]) -> Iterator[str]:
    """Yield the cells of a heat map, neighbours of a column that look the same as one."""
    colour_of, width = _colour_of(run, colours), run.end_ps / _COLUMNS
    busy: list[list[dict[str, float]]] = [[{} for _ in range(sm_count)] for _ in range(_COLUMNS)]
    for batch in run.batches:
        rows = [row for first, count in stretches(batch.sms, sm_count) for row in range(first, first + count)]
        for start_ps, end_ps in _times(batch):
            for column in range(int(start_ps / width), min(int(end_ps / width - 1e-9), _COLUMNS - 1) + 1):
                inside = (min(end_ps, (column + 1) * width) - max(start_ps, column * width)) / width
                for row in rows:
                    cell = busy[column][row]
                    cell[colour_of[batch.name]] = cell.get(colour_of[batch.name], 0.0) + inside
    for column in range(_COLUMNS):
        yield from _column(column, [_look(cell) for cell in busy[column]])


def _look(cell: Mapping[str, float]) -> tuple[str, int]:
    """Return the colour of what took most of a cell, and how much of it was busy, of eight."""
    if not cell:
        return "", 0
    return max(cell, key=lambda colour: cell[colour]), min(round(_LEVELS * sum(cell.values())), _LEVELS)


def _column(column: int, looks: Sequence[tuple[str, int]]) -> Iterator[str]:
    first = 0
    for row in range(1, len(looks) + 1):
        if row < len(looks) and looks[row] == looks[first]:
            continue
        colour, level = looks[first]
        if level:
            yield (
                f'<rect x="{1000 * column / _COLUMNS:.2f}" y="{first}" width="{1000 / _COLUMNS + 0.1:.2f}" '
                f'height="{row - first}" fill="{colour}" fill-opacity="{level / _LEVELS:.3f}"/>'
            )
        first = row


def _times(batch: Batch) -> Iterator[tuple[int, int]]:
    """Yield when a batch ran; of many repeats, all as one."""
    if batch.repeat_count > _MOST_REPEATS:
        yield batch.start_ps, batch.end_ps + (batch.repeat_count - 1) * batch.period_ps
        return
    for place in range(batch.repeat_count):
        yield batch.start_ps + place * batch.period_ps, batch.end_ps + place * batch.period_ps


def stretches(mask: int, sm_count: int) -> Iterator[tuple[int, int]]:
    """Yield first and number of neighbours whose bits are set.

    >>> list(stretches(0b1101, 4))
    [(0, 1), (2, 2)]
    """
    place = 0
    while place < sm_count:
        if not mask >> place & 1:
            place += 1
            continue
        end = place
        while end < sm_count and mask >> end & 1:
            end += 1
        yield place, end - place
        place = end
