"""Overlap of a product's compute, cache, memory and latency times: their 4-norm, split over the two largest."""

import math

from nearpeak.base.compilation import compiled, fused


@compiled()
def norm(a: float, b: float, c: float, d: float) -> float:
    """Return the fourth root of the sum of fourth powers: four times that overlap."""
    x, y, z, v = a * a, b * b, c * c, d * d
    return math.sqrt(math.sqrt(fused(y, y, x * x) + fused(v, v, z * z)))


@compiled()
def shares(a: float, b: float, c: float, d: float, excess: float) -> tuple[float, float, float, float]:
    """Return the largest of four times as it is, `excess` in place of the second largest, and 0 for the others."""
    first_a = (a >= b) & (a >= c) & (a >= d)
    first_b = (not first_a) & (b >= c) & (b >= d)
    first_c = (not first_a) & (not first_b) & (c >= d)
    first_d = not (first_a | first_b | first_c)
    rest_a, rest_b = -1.0 if first_a else a, -1.0 if first_b else b
    rest_c, rest_d = -1.0 if first_c else c, -1.0 if first_d else d
    next_a = (rest_a >= rest_b) & (rest_a >= rest_c) & (rest_a >= rest_d)
    next_b = (not next_a) & (rest_b >= rest_c) & (rest_b >= rest_d)
    next_c = (not next_a) & (not next_b) & (rest_c >= rest_d)
    next_d = not (next_a | next_b | next_c)
    return (
        a * first_a + excess * next_a, b * first_b + excess * next_b,
        c * first_c + excess * next_c, d * first_d + excess * next_d,
    )  # fmt: skip
