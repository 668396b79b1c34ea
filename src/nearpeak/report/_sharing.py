"""Streams that share a device as a table: latencies, missed deadlines, and why they waited."""

from collections.abc import Iterator, Sequence

from nearpeak.core.simulation import Sharing
from nearpeak.units import show

_WIDTH = 16


def to_terminal(title: str, found: Sequence[Sharing]) -> str:
    """Return one block per policy."""
    return "\n".join([f"{title}, simulated", *(line for one in found for line in _block(one))])


def _block(one: Sharing) -> Iterator[str]:
    yield f"{one.policy}: all done after {show(one.end_s, 's')}"
    yield f"  {'stream':{_WIDTH}} {'jobs':>6} {'alone':>10} {'median':>10} {'99 %':>10} {'missed':>6}"
    for stream in one.streams:
        yield (
            f"  {stream.name[:_WIDTH]:{_WIDTH}} {len(stream.job_s):>6} {show(stream.alone_s, 's'):>10} "
            f"{show(stream.median_s, 's'):>10} {show(stream.p99_s, 's'):>10} {stream.missed_count:>6}"
        )
        if stream.reasons:
            yield f"    waited: {stream.reasons[0]}"
