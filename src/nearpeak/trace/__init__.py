"""Traces of profilers: importers into one schema of columns, arithmetic over the timeline, and exporters."""

from nearpeak.trace.columns import MISSING, NO_ROW, Column, Texts, Trace
from nearpeak.trace.formats import FORMATS, read_trace

__all__ = ["FORMATS", "MISSING", "NO_ROW", "Column", "Texts", "Trace", "read_trace"]
