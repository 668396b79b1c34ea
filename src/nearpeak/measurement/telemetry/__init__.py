"""Sensors beside the work: a sampler in a process of its own, one file per source, and readers of power logs."""
