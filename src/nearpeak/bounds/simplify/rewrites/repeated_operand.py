"""Repeated rows: rows that repeat others are multiplied once (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="rows that only repeat others are multiplied once",
    sound="the same products of the same operands have the same result",
)
