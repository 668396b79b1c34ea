"""Emulated number formats and accumulators."""
