"""Trace files of multi-rank timelines: one device per rank, one stream per lane, for viewers and for `analyze`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from nearpeak.core.systems.system_timeline import LANES, Span
from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.export.chrome_trace import write_chrome
from nearpeak.traces.export.perfetto_trace import write_perfetto
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.timeline.trace_columns import Trace

WRITERS: Mapping[str, Callable[[Trace, Path], None]] = {
    ".json": write_chrome,
    ".pftrace": write_perfetto,
    ".perfetto-trace": write_perfetto,
}
"""Writers by the end of a file's name; Perfetto opens all of them."""
_TRANSFERS = ("tp", "cp", "ep", "dp", "pp")
"""Lanes whose spans are shown with the lane's name."""


def trace_of_spans(spans: Iterable[Span], name: str) -> Trace:
    """Return the spans of all ranks as a trace in whole nanoseconds.

    Lanes are streams in the order of LANES; those of the host are threads. Spans shorter than half a nanosecond stay as
    moments.

    Raises:
        SpecError: a span has an unknown lane or ends before it starts.

    >>> trace = trace_of_spans([Span(1, "compute", 0.0, 2e-6, "0F0")], "step")
    >>> len(trace), int(trace.end_ns[0]), int(trace.device[0])
    (1, 2000, 1)
    """
    listed = list(spans)
    for span in listed:
        if span.lane not in LANES or span.stop_s < span.start_s:
            raise SpecError(
                f"timeline: span {span.name!r} of rank {span.rank} on lane {span.lane!r} from {span.start_s:g} to "
                f"{span.stop_s:g} s; lanes are {', '.join(LANES)}, and no span ends before it starts"
            )
    rows = EventRows()
    for is_host in (False, True):
        chosen = [span for span in listed if (span.lane == "host") == is_host]
        times = np.rint(np.array([[span.start_s, span.stop_s] for span in chosen]).reshape(-1, 2) * 1e9)
        ranks = np.array([span.rank for span in chosen], np.int64)
        lanes = np.array([LANES.index(span.lane) for span in chosen], np.int64)
        names = [f"{span.lane}: {span.name}" if span.lane in _TRANSFERS else span.name for span in chosen]
        start, end = times[:, 0].astype(np.int64), times[:, 1].astype(np.int64)
        if is_host:
            rows.add(EventKind.HOST_RANGE, names, start, end, process=ranks, thread=lanes)
        else:
            rows.add(EventKind.KERNEL, names, start, end, device=ranks, stream=lanes)
    return rows.trace(
        TraceHeader(format="system timeline", source=name, clock="monotonic", method="simulated timeline")
    )


def write_timeline(spans: Iterable[Span], path: Path) -> None:
    """Write the spans of all ranks to a file that Perfetto opens.

    Raises:
        SpecError: the name ends in none of WRITERS.
    """
    if path.suffix not in WRITERS:
        raise SpecError(f"{path}: a timeline is written to a file whose name ends in {', '.join(WRITERS)}")
    WRITERS[path.suffix](trace_of_spans(spans, path.stem), path)
