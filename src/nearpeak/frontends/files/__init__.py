"""Frontends for files of cases: operator logs, sweeps, tables, kernel definitions, saved workloads."""
