"""Traces of profilers: importers into one schema of columns, arithmetic over the timeline, and exporters."""

from nearpeak.traces.formats import FORMATS, read_trace
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Column, Texts, Trace

__all__ = ["FORMATS", "MISSING", "NO_ROW", "Column", "Texts", "Trace", "read_trace"]
