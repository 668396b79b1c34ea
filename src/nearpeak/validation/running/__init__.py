"""Runs of an implementation on guarded buffers."""
