"""Readers: bytes of profiler files become columns of events."""
