"""Streams that share a device as tables: policies side by side, latencies, missed deadlines, why they waited."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.simulation import Sharing
from nearpeak.reports.figure_text import hung
from nearpeak.reports.svg_page import table
from nearpeak.units import show

_WIDTH = 16


def to_terminal(title: str, found: Sequence[Sharing]) -> str:
    """Return one block per policy, and all policies side by side below where there are several."""
    lines = [f"{title}, simulated", *(line for one in found for line in _block(one))]
    return "\n".join(hung([*lines, *(_comparison(found) if len(found) > 1 else ())]))


def _block(one: Sharing) -> Iterator[str]:
    energy = "" if one.energy_j is None else f", {show(one.energy_j, 'J')}"
    yield f"{one.policy}: all done after {show(one.end_s, 's')}{energy}"
    yield f"  {'stream':{_WIDTH}} {'jobs':>6} {'alone':>10} {'median':>10} {'99 %':>10} {'missed':>6}"
    for stream in one.streams:
        yield (
            f"  {stream.name[:_WIDTH]:{_WIDTH}} {len(stream.job_s):>6} {show(stream.alone_s, 's'):>10} "
            f"{show(stream.median_s, 's'):>10} {show(stream.p99_s, 's'):>10} {stream.missed_count:>6}"
        )
        yield from (f"    waited: {reason}" for reason in stream.reasons[:2])
    for pair in one.overlaps:
        share = 100 * pair.both_s / pair.most_s if pair.most_s else 0.0
        why = f": {pair.reason}" if pair.reason else ""
        yield f"  {pair.first} and {pair.second} ran together for {share:.0f} % of the shorter{why}"


def _comparison(found: Sequence[Sharing]) -> Iterator[str]:
    """Yield one line per policy with the 99 % latency of each stream; the best of each column is marked."""
    columns = _columns(found)
    names = [name for name, _ in columns]
    wide = [max(len(name), 12) for name in names]
    yield f"{'policy':12} " + " ".join(f"{name:>{size}}" for name, size in zip(names, wide, strict=True))
    for place, one in enumerate(found):
        cells = []
        for (_, values), size in zip(columns, wide, strict=True):
            mark = "*" if values[place] == min(values) and max(values) > min(values) else " "
            cells.append(f"{show(values[place], 's') + mark:>{size}}")
        missed = sum(stream.missed_count for stream in one.streams)
        yield f"{one.policy:12} " + " ".join(cells) + f"  {missed} missed"
    yield "* least of its column"


def _columns(found: Sequence[Sharing]) -> list[tuple[str, list[float]]]:
    first = found[0]
    columns = [
        (f"{stream.name} 99 %", [one.streams[place].p99_s for one in found])
        for place, stream in enumerate(first.streams)
    ]
    return [*columns, ("all done", [one.end_s for one in found])]


def to_html(found: Sequence[Sharing]) -> str:
    """Return the policies side by side and why streams waited, for the foot of a page."""
    columns = _columns(found)
    head = ("policy", *(name for name, _ in columns), "missed", "energy")
    rows = [
        (one.policy, *(show(values[place], "s") for _, values in columns),
         str(sum(stream.missed_count for stream in one.streams)),
         "–" if one.energy_j is None else show(one.energy_j, "J"))
        for place, one in enumerate(found)
    ]  # fmt: skip
    waits = [
        (f"{one.policy}: {stream.name}", stream.reasons[0]) for one in found for stream in one.streams if stream.reasons
    ]
    waited = f"<h2>Why streams waited</h2>{table(('policy and stream', 'longest'), waits)}" if waits else ""
    return f"<h2>Policies side by side</h2>{table(head, rows)}{waited}"
