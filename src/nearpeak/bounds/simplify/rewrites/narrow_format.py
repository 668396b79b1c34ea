"""Narrow values in wide formats: products are formed in the format that holds both factors (by the facts of values)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="values that a narrower format holds exactly, up to shared scales, are multiplied in it",
    sound="products of narrow numbers are exact in the units of their format; shared factors are applied to sums",
)
