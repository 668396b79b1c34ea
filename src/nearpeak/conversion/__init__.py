"""Conversion coverage: which parts of a model a backend takes, and what the rest costs."""
