"""Frontends for files that list cases: operator logs, sweeps, tables, kernel definitions, saved workloads."""
