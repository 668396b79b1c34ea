"""Frontends that turn models, files and sweeps into workloads: one file per kind of source."""
