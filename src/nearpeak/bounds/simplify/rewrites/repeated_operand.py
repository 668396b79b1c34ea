"""Rows that only repeat others are multiplied once; counting knows it, so no rule."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="rows that only repeat others are multiplied once",
    sound="the same products of the same operands have the same result",
)
