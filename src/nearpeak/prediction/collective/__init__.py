"""Collective kernel model: protocols and coefficients."""
