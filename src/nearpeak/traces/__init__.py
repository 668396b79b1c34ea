"""Profiler traces: importers into one column schema, timeline arithmetic, findings and exporters."""

from nearpeak.traces.formats import FORMATS, read_trace
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Column, Texts, Trace

__all__ = ["FORMATS", "MISSING", "NO_ROW", "Column", "Texts", "Trace", "read_trace"]
