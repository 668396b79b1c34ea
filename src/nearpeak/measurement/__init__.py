"""Measurement of cases and machine roofs on real hardware."""
