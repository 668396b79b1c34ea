"""Masked products: only nonzero operands and needed results are multiplied (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="products with what the program itself sets to zero, or for what it hides, are not formed",
    sound="values are finite (A8), and far from what hides a score, so that its exponential is 0 beside any other's",
)
