"""Simulator of existing and hypothetical GPUs: events, residency, shared bandwidth, streams, partitions."""
