"""A GPU that may not exist: events, residency, shared bandwidth, streams, partitions, in integer picoseconds."""
