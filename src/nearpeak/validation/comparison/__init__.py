"""Comparison of outputs with the oracle."""
