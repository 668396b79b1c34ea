"""Exporters of traces."""
