"""Sums of products with one operand: that operand is multiplied once, by the sum of the others."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("add",),
    rule=None,
    text="products of one operand are added up before they are formed, as x A + x B is x (A + B)",
    sound="always, in real arithmetic (A18)",
)
