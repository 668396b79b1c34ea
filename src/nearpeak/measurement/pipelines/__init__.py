"""Pipelines of Python functions and models: named stages, execution, and times."""
