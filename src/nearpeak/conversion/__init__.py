"""Conversion coverage: which parts of a model a backend runs, and the cost of the rest."""
