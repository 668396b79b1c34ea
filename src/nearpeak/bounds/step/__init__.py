"""Bounds of whole steps."""
