"""Report of streams that share a device: policies side by side, latencies, missed deadlines, wait causes."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.simulation import Sharing
from nearpeak.reports.document import Block, Cell, Document, Heading, Table, columns
from nearpeak.reports.heat_map import drawing_of
from nearpeak.units import show


def document_of(title: str, policies: Sequence[Sharing], sm_count: int) -> Document:
    """Return a section per policy, and all policies side by side below where there are several."""
    blocks = [block for policy in policies for block in _policy(policy, sm_count)]
    blocks += _comparison(policies) if len(policies) > 1 else []
    return Document(title=f"{title}, simulated", blocks=blocks, kicker="Streams that share a device")


def _policy(sharing: Sharing, sm_count: int) -> Iterator[Block]:
    energy = "" if sharing.energy_j is None else f", {show(sharing.energy_j, 'J')}"
    yield Heading(f"{sharing.policy}: all done after {show(sharing.end_s, 's')}{energy}")
    if sharing.run is not None:
        yield drawing_of(sharing.run, sm_count)
    rows = [
        (stream.name, len(stream.job_s), stream.alone_s, stream.median_s, stream.p99_s, stream.missed_count,
         "; ".join(f"waited: {reason}" for reason in stream.reasons[:2])) for stream in sharing.streams
    ]  # fmt: skip
    heads = ("#jobs", "#alone_s|alone", "#median_s|median", "#p99_s|99 %", "#missed", ">waits")
    yield Table(columns=columns("stream", *heads), rows=rows)
    for pair in sharing.overlaps:
        share = 100 * pair.both_s / pair.most_s if pair.most_s else 0.0
        why = f": {pair.reason}" if pair.reason else ""
        yield f"{pair.first} and {pair.second} ran together for {share:.0f} % of the shorter{why}"


def _comparison(policies: Sequence[Sharing]) -> list[Block]:
    """Return one row per policy with the 99 % latency of each stream; the best of each column is marked."""
    figures = [
        (f"{stream.name} 99 %", [policy.streams[place].p99_s for policy in policies])
        for place, stream in enumerate(policies[0].streams)
    ]
    figures.append(("all done", [policy.end_s for policy in policies]))
    rows = []
    for place, policy in enumerate(policies):
        cells = []
        for _, values in figures:
            is_best = values[place] == min(values) < max(values)
            text = f"{show(values[place], 's')}{'*' if is_best else ' '}"
            cells.append(Cell(value=values[place], text=text, kind="strong" if is_best else ""))
        rows.append((policy.policy, *cells, sum(stream.missed_count for stream in policy.streams), policy.energy_j))
    heads = columns("policy", *(f"#{name}" for name, _ in figures), "#missed", "#energy_j|energy")
    return [Heading("Policies side by side"), Table(columns=heads, rows=rows), "* least of its column"]
