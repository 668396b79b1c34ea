"""Grouped-GEMM kernel model: shapes, tile search and coefficients."""
