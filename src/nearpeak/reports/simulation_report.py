"""Reports of a simulated run, as text, JSON and a trace for Perfetto."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nearpeak.core.answers.simulation import Batch, Run, Span
from nearpeak.reports.document import Block, Document, Table, columns
from nearpeak.reports.heat_map import drawing_of
from nearpeak.units import show

PS_PER_US = 1_000_000
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 60


def document_of(
    label: str, title: str, run: Run, bound_s: float | None, slots: int, more: Sequence[tuple[str, str]] = ()
) -> Document:
    """Return a run: time, share of the bound, kernels, and how many multiprocessors were busy.

    Args:
        slots: multiprocessors of the device.
        more: further figures with their names.
    """
    time_s = run.end_ps * 1e-12
    figures = [("time", show(time_s, "s"))]
    if bound_s:
        figures.append(("bound", f"{show(bound_s, 's')}, reached to {100 * bound_s / time_s:.0f} %"))
    if run.energy_j is not None:
        figures.append(("energy", f"{show(run.energy_j, 'J')}, on average {show(run.energy_j / time_s, 'W')}"))
    counts = f"{len(run.spans)}, thread blocks {run.cta_count:,}, events {run.event_count:,}"
    figures += [("kernels", counts), *more]
    if run.batches:
        scale = f"0 to {show(time_s, 's')}; █ is all {slots} multiprocessors"
        figures += [("busy", wave(run, slots)), ("", scale)]
    blocks: list[Block] = [figures_table(figures)]
    blocks += [drawing_of(run, slots, "Multiprocessors")] if run.batches else []
    blocks += _kernels(run)
    return Document(title=f"{label} on {title} (simulated)", blocks=blocks, kicker="Simulated run")


def figures_table(figures: Sequence[tuple[str, str]]) -> Table:
    """Return figures with their names, without a heading."""
    return Table(columns=columns("name|", "value|"), rows=figures, indent_count=2)


def _kernels(run: Run, most: int = 12) -> list[Block]:
    """Return the longest kernels in the order in which they ran."""
    order = sorted(run.spans, key=lambda span: span.start_ps - span.end_ps)[:most]
    rows = []
    for span in sorted(order, key=lambda span: span.start_ps):
        waited_ps = span.start_ps - span.ready_ps
        waited = f"waited {show(waited_ps * 1e-12, 's')}" if waited_ps else ""
        rows.append((span.name, (span.end_ps - span.start_ps) * 1e-12, waited))
    rest = f"… and {len(run.spans) - most} shorter" if len(run.spans) > most else ""
    return [Table(columns=columns("kernel", "#time_s|time", "waited|"), rows=rows), rest]


def wave(run: Run, slots: int) -> str:
    """Return how many multiprocessors were busy over time, one character per slice.

    >>> from nearpeak.core.answers.simulation import Batch
    >>> batch = Batch(name="a", start_ps=0, end_ps=10, sms=0b11, each_count=1)
    >>> wave(Run(end_ps=20, spans=(), batches=(batch,), event_count=1, cta_count=2), 2)[::15]
    '██  '
    """
    width = max(run.end_ps / _COLUMNS, 1e-9)
    busy = [0.0] * _COLUMNS
    for batch in run.batches:
        for start, end in _times(batch):
            first, last = int(start / width), min(int(end / width - 1e-9), _COLUMNS - 1)
            for place in range(first, last + 1):
                inside = min(end, (place + 1) * width) - max(start, place * width)
                busy[place] += batch.sms.bit_count() * max(inside, 0.0) / width
    return "".join(" " if each <= 0 else _BLOCKS[min(int(8 * each / slots), 7)] for each in busy)


def _times(batch: Batch, most: int = 10_000) -> Iterator[tuple[int, int]]:
    for place in range(min(batch.repeat_count, most)):
        yield batch.start_ps + place * batch.period_ps, batch.end_ps + place * batch.period_ps


def to_json(label: str, target: str, run: Run, bound_s: float | None) -> str:
    """Return a run as one line of JSON."""
    spans = [
        {
            "name": span.name, "queue": span.queue, "ready_s": span.ready_ps * 1e-12, "start_s": span.start_ps * 1e-12,
            "placed_s": span.placed_ps * 1e-12, "end_s": span.end_ps * 1e-12, "pool_bytes": dict(span.pool_bytes),
            "slot_s": span.slot_ps * 1e-12, "held_s": {why: lost * 1e-12 for why, lost in span.held_ps.items()},
        }
        for span in run.spans
    ]  # fmt: skip
    return json.dumps({
        "case": label, "target": target, "simulated_s": run.end_ps * 1e-12, "bound_s": bound_s,
        "energy_j": run.energy_j, "cta_count": run.cta_count, "event_count": run.event_count, "kernels": spans,
    })  # fmt: skip


def to_trace(run: Run, slots: int) -> str:
    """Return a run as Chrome trace events, which Perfetto and chrome://tracing open.

    Streams and copy engines are tracks; busy multiprocessors, resident blocks, power, clock and temperature counters;
    changes between contexts a track of their own. Times are microseconds, as the format wants them.
    """
    copies = {span.queue for span in run.spans if not span.slot_ps}
    queues = {queue: place for place, queue in enumerate(dict.fromkeys(span.queue for span in run.spans), 1)}
    names = {place: f"{'copies of ' if queue in copies else 'stream '}{queue}" for queue, place in queues.items()}
    if run.switches:
        names[0] = "changes of context"
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "GPU"}}]
    events += [
        {"ph": "M", "pid": 1, "tid": place, "name": "thread_name", "args": {"name": name}}
        for place, name in names.items()
    ]
    events += [_span_event(span, queues[span.queue]) for span in run.spans]
    events += [
        {
            "ph": "X", "pid": 1, "tid": 0, "name": f"{switch.leaving} to {switch.entering}",
            "ts": switch.start_ps / PS_PER_US,
            "dur": (switch.end_ps - switch.start_ps) / PS_PER_US, "cat": "switch",
            "args": {"saved_bytes": switch.saved_bytes, "restored_bytes": switch.restored_bytes},
        }
        for switch in run.switches
    ]  # fmt: skip
    events += [_counter("busy multiprocessors", time, {"busy": busy}) for time, busy in _steps(run)]
    events += [_counter("power", time, {"W": watt}) for time, watt, _ in run.governed]
    events += [_counter("clock", time, {"percent": 100 * clock}) for time, _, clock in run.governed]
    warm = zip(run.governed, run.heat_celsius, strict=True) if run.heat_celsius else ()
    events += [_counter("temperature", time, {"celsius": celsius}) for (time, _, _), celsius in warm]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "metadata": {"multiprocessors": slots}})


def _span_event(span: Span, place: int) -> dict[str, Any]:
    return {
        "ph": "X", "pid": 1, "tid": place, "name": span.name, "cat": "kernel" if span.slot_ps else "copy",
        "ts": span.start_ps / PS_PER_US, "dur": (span.end_ps - span.start_ps) / PS_PER_US,
        "args": {
            "ready_us": span.ready_ps / PS_PER_US, "last_block_us": span.placed_ps / PS_PER_US,
            **{f"held_{why}_us": lost / PS_PER_US for why, lost in span.held_ps.items()},
            **{f"{pool}_bytes": amount for pool, amount in span.pool_bytes.items()},
        },
    }  # fmt: skip


def _counter(name: str, time_ps: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "name": name, "ts": time_ps / PS_PER_US, "args": values}


def _steps(run: Run) -> Iterator[tuple[int, int]]:
    """Yield when the number of busy multiprocessors changes, and to what."""
    changes: dict[int, int] = {}
    for batch in run.batches:
        for start, end in _times(batch):
            changes[start] = changes.get(start, 0) + batch.sms.bit_count()
            changes[end] = changes.get(end, 0) - batch.sms.bit_count()
    busy = 0
    for time in sorted(changes):
        busy += changes[time]
        yield time, busy
