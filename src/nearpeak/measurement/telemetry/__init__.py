"""Telemetry of sensors during a run: a sampler process, one file per source, readers of power logs."""
