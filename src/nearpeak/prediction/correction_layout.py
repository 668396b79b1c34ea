"""Constants of correction trees (depth, leaves, largest change), shared by their fit and compiled evaluation."""

import math

LARGEST_RATIO = 0.25
"""Largest relative change of a time by a correction."""
LIMITS = math.log(1 - LARGEST_RATIO), math.log(1 + LARGEST_RATIO)
"""The bounds as logarithms."""
DEPTH, LEAF_COUNT = 6, 64
"""Levels of a tree, and its number of leaves."""
UNIT = 5e-4
"""Logarithm per unit of a leaf's number."""
