"""Report of an inference server: verdict, latencies against load, streams with deadlines, and the cheapest setting."""

import json
from collections.abc import Iterator

from nearpeak.core.systems.inference_plan import LoadPoint, PlannedServer, ServerSetting
from nearpeak.reports.brief_text import brief
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns
from nearpeak.reports.figure_text import percent

NOTES = (
    "Latency counts from the arrival of a request to the end of its batch; an open loop keeps sending while the server "
    "is busy, so that waits of all who come meanwhile are in the tail. Network and client are not in it.",
    "Batches form as in Triton: a free instance takes a preferred batch at once, else it waits up to the queue delay.",
)


def to_json(planned: PlannedServer) -> str:
    """Return the plan as one JSON line."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedServer) -> Document:
    """Return the plan as a document."""
    blocks: list[Block] = [*_streams(planned), *_loads(planned)]
    is_ensemble = len(planned.models) > 1 and not planned.streams
    words = f"ensemble of {len(planned.models)} steps" if is_ensemble else _words(planned.setting)
    blocks.append(Details("Configuration, definitions and assumptions (--why)", tuple(_why(planned))))
    return Document(
        title=f"Inference server: {' → '.join(planned.models)}", subject=f"{words}; {planned.how}",
        lead=_verdict(planned), blocks=blocks, kicker="Inference server plan", is_lead_first=True,
    )  # fmt: skip


def _words(setting: ServerSetting) -> str:
    """Return a setting in words."""
    many = [f"{count} {name}{'s' * (count > 1)}" for count, name in
            ((setting.device_count, "device"), (setting.instance_count, "instance"))]  # fmt: skip
    delay = f", delay {brief(setting.queue_delay_s, 's')}" if setting.queue_delay_s else ""
    placed = f"{', '.join(many)} each" if setting.device_count else f"{many[1]} on the host"
    return f"{placed}, batches to {setting.most_batch_count or 1}{delay}"


def _verdict(planned: PlannedServer) -> str:
    """Return the answer in a sentence or two."""
    if planned.streams:
        late = [stream for stream in planned.streams if stream.missed_ratio]
        worst = max(planned.streams, key=lambda stream: stream.p99_s / (stream.deadline_s or 1.0))
        tail = f"worst {worst.name}: p99 {brief(worst.p99_s, 's')}"
        if worst.deadline_s is not None:
            tail += f" of {brief(worst.deadline_s, 's')}"
        missed = f"{len(late)} of {len(planned.streams)} miss deadlines" if late else "no deadline is missed"
        return f"{len(planned.streams)} streams: {missed}; {tail}.{_assumed(planned)}"
    words = [f"At most {planned.capacity_per_s:,.4g} requests/s"]
    if planned.highest_per_s is not None and planned.limit_s is not None:
        within = f"{planned.highest_per_s:,.4g} requests/s" if planned.highest_per_s else "no rate"
        words.append(f"{within} within p99 {brief(planned.limit_s, 's')}")
    if planned.asked is not None:
        missed = ", beyond the limit" if _is_over(planned.asked, planned) else ""
        words.append(f"at {planned.asked.rate_per_s:g}/s p50 {_time(planned.asked.p50_s, planned)}, p99 "
                     f"{_time(planned.asked.p99_s, planned)}{missed}")  # fmt: skip
    verdict = "; ".join(words) + "."
    if planned.cheapest is not None and planned.cheapest_p99_s is not None:
        verdict += (f" Cheapest of {planned.looked_count} settings within the limit: {_words(planned.cheapest)}, p99 "
                    f"{brief(planned.cheapest_p99_s, 's')}.")  # fmt: skip
    return verdict + _assumed(planned)


def _is_over(point: LoadPoint, planned: PlannedServer) -> bool:
    """Return whether the 99th percentile at a load exceeds the limit."""
    return planned.limit_s is not None and point.p99_s > planned.limit_s


def _assumed(planned: PlannedServer) -> str:
    """Return the sentence on a slowdown that nobody stated; empty where none is assumed."""
    if not planned.is_sharing_assumed:
        return ""
    return (f" The slowdown by a busy neighbour under MPS, {100 * planned.sharing_ratio:.0f} %, is assumed: "
            "--share mps:SLOWDOWN states it.")  # fmt: skip


def _time(seconds: float, planned: PlannedServer) -> str:
    """Return a latency; beyond the capacity it grows as long as the load lasts."""
    over = planned.asked is not None and planned.asked.rate_per_s >= planned.capacity_per_s
    return "without end" if over else brief(seconds, "s")


def _streams(planned: PlannedServer) -> Iterator[Block]:
    for rows, name, caption in (
        (planned.streams, "streams", "Streams"),
        (planned.steps, "steps", "Steps of the ensemble"),
    ):
        if rows:
            cells = [
                (row.name, row.rate_per_s, row.p50_s, row.p99_s, row.deadline_s,
                 None if row.deadline_s is None else row.missed_ratio) for row in rows
            ]  # fmt: skip
            heads = columns("name", "#per s", "#p50_s|p50", "#p99_s|p99", "#deadline_s|deadline", "#missed_ratio|late")
            yield Table(columns=heads, rows=[(cell[0], f"{cell[1]:g}", *cell[2:]) for cell in cells], name=name,
                        caption=caption)  # fmt: skip


def _loads(planned: PlannedServer) -> Iterator[Block]:
    if not planned.loads:
        return
    rows = [_load_row(point, planned) for point in planned.loads]
    heads = columns(
        "#load", "#rate|requests per s", "#p50_s|p50", "#p99_s|p99", "#batch|mean batch", "#busy_ratio|busy",
        *(["limit"] if planned.limit_s is not None else []),
    )  # fmt: skip
    yield Table(columns=heads, rows=rows, name="loads", caption="Latencies against load")


def _load_row(point: LoadPoint, planned: PlannedServer) -> tuple[object, ...]:
    limit = () if planned.limit_s is None else ("missed" if _is_over(point, planned) else "met",)
    rate = Cell(value=point.rate_per_s, text=f"{point.rate_per_s:,.4g}")
    load = percent(point.rate_per_s / planned.capacity_per_s)
    return (load, rate, point.p50_s, point.p99_s, f"{point.mean_batch:.1f}", point.busy_ratio, *limit)  # fmt: skip


def _why(planned: PlannedServer) -> Iterator[Block]:
    yield from (Text(note) for note in NOTES)
    yield Text(f"Sharing: {planned.how}.")
    yield from (Text(f"  {line}") for line in planned.config.splitlines())
