"""Power logs of several tools: one counter per channel, and the phases that a log names."""

from pathlib import Path

import numpy as np

from nearpeak.core.traces.trace import EventKind, Loss, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.exchange.log_columns import UNTIMED
from nearpeak.exchange.power_logs import LOGS
from nearpeak.traces.reading.csv_columns import lines_of
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.timeline.trace_columns import Trace
from nearpeak.traces.trace_format import TraceFormat

INSTEAD = "'nearpeak telemetry --import FILE --interval 1s' reads it; pass a profiler's trace here"
"""What to do with a power log instead."""


def _read(path: Path) -> Trace:
    """Return the trace of a log; readings that failed are left out."""
    losses: list[Loss] = []
    text = "".join(lines_of(path, losses))
    name = next((log for log in LOGS if LOGS[log].recognises(text[:4096])), None)
    if name is None:
        raise SpecError(f"{path.name}: no power log that is known; there are {', '.join(LOGS)}")
    try:
        telemetry = LOGS[name].read(text, path.name, None)
    except SpecError as error:
        if str(error).endswith(UNTIMED):
            raise SpecError(f"{path.name}: is a power log ({name}) whose lines have no time; {INSTEAD}") from None
        raise
    rows = EventRows()
    for stream in telemetry.streams:
        before, after = (np.array(log, np.int64) for log in (stream.before_ns, stream.after_ns))
        middle = before + (after - before) // 2
        for channel, values in zip(stream.channels, stream.values, strict=True):
            read = np.array(values, np.float64)
            good = np.isfinite(read)
            rows.add(
                EventKind.COUNTER,
                [channel.name] * int(good.sum()),
                middle[good],
                middle[good],
                rare={"value": read[good]},
                texts={"unit": [channel.unit] * int(good.sum())},
            )
            if lost := int((~good).sum()):
                rows.lose("skipped", f"reading of {channel.name} that failed", lost)
    spans = np.array([[begin, end] for _, begin, end in telemetry.spans], np.int64).reshape(-1, 2)
    rows.add(EventKind.HOST_RANGE, [phase for phase, _, _ in telemetry.spans], spans[:, 0], spans[:, 1])
    header = TraceHeader(
        format="power_log",
        version=name,
        source=path.name,
        base_ns=telemetry.wall_ns - telemetry.begin_ns if telemetry.wall_ns else 0,
        method=f"power log ({name})",
        losses=tuple(losses),
    )
    return rows.trace(header)


def _recognises(head: bytes) -> bool:
    text = head[:4096].decode("utf-8", "replace").removeprefix("\ufeff")
    return any(LOGS[name].recognises(text) for name in LOGS)


FORMAT = TraceFormat(
    name="power_log",
    title="Power logs: spl.txt, tegrastats, Zeus, nvidia-smi, dcgmi, rocm-smi",
    recognises=_recognises,
    read=_read,
)
