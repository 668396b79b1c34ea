"""Reductions, pooling and selection."""
