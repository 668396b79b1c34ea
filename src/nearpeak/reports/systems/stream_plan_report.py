"""Report of sensor streams on a board: verdict, responses, waits, age at fusion, and power modes."""

import json
from collections.abc import Iterator

from nearpeak.core.edge.stream_answer import PROVED, REFUTED, PlannedStreams
from nearpeak.reports.brief_text import brief, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, Timeline, columns

SHOWN_RUNS = 12
"""Pieces of a counter-example that a terminal shows."""
_ASSUMED = (
    "Work that has started runs to its end; times are taken as constant. Unless every stream states its offset, every "
    "offset can happen. Schedule streams: work starts on each engine in the order in which it becomes ready, kernels "
    "side by side where they fit; edf and slices: one piece at a time on each engine, that with the nearest deadline, "
    "where stages on shared engines divide a frame's slack in proportion to their times. A stream's stages stay on one "
    "unit of an engine. Copies and kernels do not slow one another down."
)


def to_json(planned: PlannedStreams) -> str:
    """Return the plan as one JSON line."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedStreams) -> Document:
    """Return the plan as a document."""
    blocks = [
        _responses(planned), *_engines(planned), *_overlaps(planned), *_ages(planned),
        *_counter_example(planned),
    ]  # fmt: skip
    blocks.append(Details("Test, timeline and assumptions (--why)", tuple(_why(planned))))
    return Document(
        title=f"{planned.rig.name} on {planned.target}", lead=_verdict(planned), blocks=blocks, kicker="Sensor streams",
        subject=f"{len(planned.rig.streams)} streams, schedule {planned.schedule}",
    )  # fmt: skip


def _verdict(planned: PlannedStreams) -> str:
    """Return the answer in one or two sentences."""
    outcome = planned.outcome
    if outcome.verdict == PROVED:
        text = f"Every deadline is met, proved: {outcome.reason}."
        cuts = [f"{stream.name} in {stage.slice_count} slices" for stream in planned.rig.streams
                for stage in stream.stages if stage.slice_count > 1]  # fmt: skip
        text += f" Kernel of {', '.join(cuts)}." if cuts else ""
    elif outcome.verdict == REFUTED and outcome.missed:
        text = (
            f"Not schedulable: frame {outcome.index} of {outcome.missed} ends "
            f"{brief(outcome.late_ns / 1e9, 's')} after its deadline; {outcome.reason}."
        )
    else:
        text = f"{'Not schedulable' if outcome.verdict == REFUTED else 'Undecided'}: {outcome.reason}."
    if planned.alternatives:
        text += f" With --schedule {planned.alternatives[0]} every deadline is proved to be met."
    if planned.modes:
        power = next((row.power_w for row in planned.modes if row.mode == planned.least_mode), None)
        at = f" ({brief(power, 'W')})" if power is not None else ""
        least = f" Least mode that meets every deadline: {planned.least_mode}{at}."
        text += least if planned.least_mode else " No power mode is proved to meet every deadline."
    return text


def _responses(planned: PlannedStreams) -> Table:
    rows = []
    for stream, row in zip(planned.rig.streams, planned.responses, strict=True):
        rate = None if row.break_ratio is None else row.break_ratio * 1e9 / stream.period_ns
        breaks = "–" if rate is None else f"{rate:.3g}/s"
        limit = Cell(value=row.limit_s, text="–" if row.limit_s is None else brief(row.limit_s, "s"))
        late = Cell(value=row.missed_count, text=f"{row.missed_count} of {row.frame_count}",
                    kind="bad" if row.missed_count else "")  # fmt: skip
        rows.append((row.stream, row.p50_s, row.p99_s, row.worst_s, limit, row.deadline_s, late,
                     Cell(value=rate, text=breaks)))  # fmt: skip
    heads = ("stream", "#p50_s|p50", "#p99_s|p99", "#worst_s|worst", "#limit_s|never above", "#deadline_s|deadline",
             "#missed_count|late", "#+break_per_s|breaks at")  # fmt: skip
    kind = "of the repeating cycle" if planned.is_whole_cycle else "of the simulated frames"
    return Table(columns=columns(*heads), rows=rows, name="responses", caption=f"Response from arrival to end, {kind}")


def _engines(planned: PlannedStreams) -> Iterator[Block]:
    """Yield utilisation and what one frame of each stream takes."""
    busy = ", ".join(f"{engine} {whole_percent(share)}" for engine, share in planned.busy_ratio.items())
    gain, most = planned.serial_s - planned.makespan_s, planned.serial_s - planned.floor_s
    reached = f"; overlap reached: {whole_percent(gain / most)}" if most > 0 else ""
    yield Text(
        f"Busy: {busy}. One frame of each at once: {brief(planned.makespan_s, 's')} (at least "
        f"{brief(planned.floor_s, 's')}, one after the other {brief(planned.serial_s, 's')}{reached})."
    )


def _overlaps(planned: PlannedStreams) -> Iterator[Block]:
    """Yield what each two streams ran together."""
    if planned.overlaps:
        rows = [
            (f"{row.first}, {row.second}", whole_percent(row.both_s / row.most_s) if row.most_s else "–", row.reason)
            for row in planned.overlaps
        ]
        yield Table(columns=columns("streams", "#overlap", "~why not more"), rows=rows, name="overlaps",
                    caption="Overlap, of what is possible", brief_count=6, rest="more pairs: --html")  # fmt: skip


def _ages(planned: PlannedStreams) -> Iterator[Block]:
    """Yield age of data at fusions, and power modes."""
    if planned.ages:
        names = dict.fromkeys(row.fusion for row in planned.ages)
        for name in names:
            parts = [f"{row.stream} {brief(row.p50_s, 's')}, worst {brief(row.worst_s, 's')}"
                     for row in planned.ages if row.fusion == name]  # fmt: skip
            yield Text(f"Age of data at {name}, median: {'; '.join(parts)}.")
    if planned.modes:
        rows = [(row.mode, row.power_w, row.verdict, row.highest_ratio) for row in planned.modes]
        heads = columns("mode", "#power_w|limit", "verdict", "#highest_ratio|busiest engine")
        yield Table(columns=heads, rows=rows, name="modes", caption="Power modes")


def _counter_example(planned: PlannedStreams) -> Iterator[Block]:
    """Yield the timeline of a late frame for pages."""
    runs = planned.outcome.timeline
    if runs:
        start = min(run.ready_ns for run in runs)
        lanes = tuple(dict.fromkeys(run.engine for run in runs))
        slices = [(lanes.index(run.engine), run.start_ns - start, run.stop_ns - start, f"{run.stream} {run.item}",
                   run.stream) for run in runs]  # fmt: skip
        palette = ("matrix", "dram", "vector", "link")
        names = dict.fromkeys(run.stream for run in runs)
        colours = {name: palette[place % len(palette)] for place, name in enumerate(names)}
        yield Timeline(rows=lanes, slices=slices, window_ns=max(run.stop_ns for run in runs) - start, colours=colours)


def _why(planned: PlannedStreams) -> Iterator[Block]:
    outcome = planned.outcome
    if outcome.timeline:
        offsets = ", ".join(f"{stream.name} {brief(offset / 1e9, 's')}" for stream, offset in
                            zip(planned.rig.streams, outcome.offsets_ns, strict=True))  # fmt: skip
        rows = [(f"{run.stream} {run.item}", run.engine, run.ready_ns / 1e9, run.start_ns / 1e9, run.stop_ns / 1e9)
                for run in outcome.timeline]  # fmt: skip
        heads = columns("frame", "engine", "#ready_s|ready", "#start_s|start", "#stop_s|end")
        yield Table(columns=heads, rows=rows, name="counter_example", brief_count=SHOWN_RUNS, rest="more: --json",
                    caption=f"Counter-example; first frames arrive at {offsets}")  # fmt: skip
    rows = [
        (stream.name, stage.engine, stage.time_ns / 1e9, stage.share / 1000, stage.slice_count)
        for stream in planned.rig.streams for stage in stream.stages
    ]  # fmt: skip
    heads = columns("stream", "engine", "#time_s|time", "#share_ratio|of the engine", "#slice_count|slices")
    yield Table(columns=heads, rows=rows, name="stages", caption="Stages")
    yield from (Text(note) for note in planned.notes)
    yield Text(_ASSUMED)
