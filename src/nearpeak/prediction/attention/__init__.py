"""Attention kernel model: shapes, coefficients, transfer between devices."""
