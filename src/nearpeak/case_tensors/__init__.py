"""Tensors of a case: seeded inputs, output shapes, memory placement, user functions."""
