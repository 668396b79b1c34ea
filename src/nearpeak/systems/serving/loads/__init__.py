"""Loads of a serving simulation: random arrivals, closed loops and files of requests."""
