"""Report of streams that share a device: policies side by side, latencies, missed deadlines, wait causes."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.simulation import Sharing
from nearpeak.reports.document import Block, Cell, Document, Heading, Table, columns
from nearpeak.reports.heat_map import drawing_of
from nearpeak.units import show


def document_of(title: str, found: Sequence[Sharing], sm_count: int) -> Document:
    """Return a section per policy, and all policies side by side below where there are several."""
    blocks = [block for one in found for block in _policy(one, sm_count)]
    blocks += _comparison(found) if len(found) > 1 else []
    return Document(title=f"{title}, simulated", blocks=blocks, kicker="Streams that share a device")


def _policy(one: Sharing, sm_count: int) -> Iterator[Block]:
    energy = "" if one.energy_j is None else f", {show(one.energy_j, 'J')}"
    yield Heading(f"{one.policy}: all done after {show(one.end_s, 's')}{energy}")
    if one.run is not None:
        yield drawing_of(one.run, sm_count)
    rows = [
        (stream.name, len(stream.job_s), stream.alone_s, stream.median_s, stream.p99_s, stream.missed_count,
         "; ".join(f"waited: {reason}" for reason in stream.reasons[:2])) for stream in one.streams
    ]  # fmt: skip
    heads = ("#jobs", "#alone_s|alone", "#median_s|median", "#p99_s|99 %", "#missed", ">waits")
    yield Table(columns=columns("stream", *heads), rows=rows)
    for pair in one.overlaps:
        share = 100 * pair.both_s / pair.most_s if pair.most_s else 0.0
        why = f": {pair.reason}" if pair.reason else ""
        yield f"{pair.first} and {pair.second} ran together for {share:.0f} % of the shorter{why}"


def _comparison(found: Sequence[Sharing]) -> list[Block]:
    """Return one row per policy with the 99 % latency of each stream; the best of each column is marked."""
    figures = [
        (f"{stream.name} 99 %", [one.streams[place].p99_s for one in found])
        for place, stream in enumerate(found[0].streams)
    ]
    figures.append(("all done", [one.end_s for one in found]))
    rows = []
    for place, one in enumerate(found):
        cells = []
        for _, values in figures:
            is_best = values[place] == min(values) < max(values)
            text = f"{show(values[place], 's')}{'*' if is_best else ' '}"
            cells.append(Cell(value=values[place], text=text, kind="strong" if is_best else ""))
        rows.append((one.policy, *cells, sum(stream.missed_count for stream in one.streams), one.energy_j))
    heads = columns("policy", *(f"#{name}" for name, _ in figures), "#missed", "#energy_j|energy")
    return [Heading("Policies side by side"), Table(columns=heads, rows=rows), "* least of its column"]
