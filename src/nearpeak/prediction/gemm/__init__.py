"""GEMM kernel model: tile search, coefficients, transfer between devices."""
