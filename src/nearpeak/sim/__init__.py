"""A GPU that may not exist: events, residency, bandwidth sharing, streams, partitions and preemption, in integer picoseconds."""
