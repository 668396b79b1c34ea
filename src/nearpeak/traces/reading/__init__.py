"""Readers from the bytes of profiler files to columns of events."""
