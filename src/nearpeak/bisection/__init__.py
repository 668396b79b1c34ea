"""Bisection of a slowdown over commits and component versions, from comparisons that may err."""
