"""Layout and bounds of correction trees, shared by their fit and by their compiled evaluation."""

import math

LARGEST_RATIO = 0.25
"""By how much a correction may change a time at most."""
LIMITS = math.log(1 - LARGEST_RATIO), math.log(1 + LARGEST_RATIO)
"""The bounds as logarithms."""
DEPTH, LEAF_COUNT = 6, 64
"""Questions of a tree, and what they tell apart."""
UNIT = 5e-4
"""Logarithm that a leaf's number counts for."""
