"""Reports of a simulated run, as text, JSON and a trace for Perfetto."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nearpeak.core.answers.items import Items, Step, items_of
from nearpeak.core.answers.simulation import Batch, Run, Span
from nearpeak.reports import brief_text as text
from nearpeak.reports import figure_text as words
from nearpeak.reports.document import Block, Details, Document, Table, columns
from nearpeak.reports.heat_map import drawing_of
from nearpeak.units import counted, show

PS_PER_US = 1_000_000
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 60


def document_of(
    label: str, title: str, run: Run, bound_s: float | None, slots: int, more: Sequence[tuple[str, str]] = (),
    step: Step | None = None,
) -> Document:  # fmt: skip
    """Return a run: time against the limit, what took longest, how many multiprocessors were busy; kernels folded.

    Args:
        slots: multiprocessors of the device.
        more: further figures with their names.
        step: the step that ran, whose items times are given for.
    """
    time_s = run.end_ps * 1e-12
    unknown = "not known, and no limit holds: no document states the power of the device (power.limit)"
    figures = [("energy", unknown if run.energy_j is None else _energy(run.energy_j, time_s))]
    counts = f"{len(run.spans):,}, thread blocks {run.cta_count:,}, events {run.event_count:,}"
    figures += [("kernels", counts), *more]
    if run.batches:
        scale = f"0 to {show(time_s, 's')}; █ is all {slots} multiprocessors"
        figures += [("busy", wave(run, slots)), ("", scale)]
    blocks: list[Block] = [figures_table(figures)]
    blocks += [drawing_of(run, slots, "Multiprocessors")] if run.batches else []
    blocks += [Details("The longest kernels in the order in which they ran (--why)", tuple(_kernels(run)))]
    times: dict[str, float] = {}
    for span in run.spans:
        name = span.name.split(" ", 1)[-1]
        times[name] = times.get(name, 0.0) + (span.end_ps - span.start_ps) * 1e-12
    subject = "" if step is None else _question(step)
    lead = _headline(time_s, bound_s, times, step)
    return Document(
        title=f"{label} on {title} (simulated)", subject=subject, lead=lead, blocks=blocks,
        kicker="Simulated run",
    )  # fmt: skip


def step_document(
    step: Step, title: str, time_s: float, bound_s: float, times_s: Mapping[str, float],
    figures: Sequence[tuple[str, float | None]], unmodelled: Mapping[str, int],
) -> Document:  # fmt: skip
    """Return a step simulated kernel after kernel: time of an item against the limit, and where it goes.

    Args:
        times_s: time by operator.
        figures: energy in J and counts, by name.
        unmodelled: calls without a time, by reason.
    """
    rows = [
        (name, part_s, part_s / time_s if time_s else 0.0)
        for name, part_s in sorted(times_s.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    lines = [(name, _energy(value, time_s) if name == "energy" else f"{value:,}")
             for name, value in figures if value is not None]  # fmt: skip
    lines += [("not in it", f"{counted(count, 'call')}: {reason}") for reason, count in unmodelled.items()]
    heads = columns("operator", "#time_s|time", "#share_ratio|share", "share_bar|of all")
    operators = [(name, part_s, share, share) for name, part_s, share in rows]
    return Document(
        title=getattr(step, "name", ""), subject=f"{_question(step)} on {title}, simulated",
        lead=_headline(time_s, bound_s, times_s, step), kicker="Simulated step",
        blocks=[
            Table(columns=heads, rows=operators, brief_count=8, rest="… and smaller ones"), figures_table(lines),
            "'nearpeak analyze' of the same step and target says what is worth trying.",
        ],
    )  # fmt: skip


def _question(step: Step) -> str:
    """Return what was asked about a step."""
    batch = step.origin.get("batch")
    return words.question(step, None if batch is None else int(batch), step.origin.get("dtype", ""))


def _headline(time_s: float, bound_s: float | None, times_s: Mapping[str, float], step: Step | None) -> str:
    """Return time and rate per item, the limit, and what takes longest."""
    items = Items(noun="step", count=1) if step is None else items_of(step)
    each = "" if step is None else f" {text.with_article(items.noun)}"
    sentence = f"{text.brief(items.item_s(time_s), 's')}{each}"
    if step is not None and time_s:
        sentence += f", {text.figure_of_three(items.per_s(time_s))} {items.noun}s/s"
    if bound_s:
        reached = text.whole_percent(bound_s / time_s) if time_s else "–"
        sentence += f"; limit {text.brief(items.item_s(bound_s), 's')}, reached to {reached}"
    total_s = sum(times_s.values())
    if len(times_s) > 1 and total_s:
        name = max(times_s, key=lambda phase: times_s[phase])
        sentence += f". {text.whole_percent(times_s[name] / total_s)} of the kernels' time is {name}"
    return f"{sentence}."


def _energy(energy_j: float | None, time_s: float) -> str:
    return f"{show(energy_j or 0.0, 'J')}, on average {show((energy_j or 0.0) / time_s, 'W')}" if time_s else "0 J"


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
