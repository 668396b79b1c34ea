"""A product is formed where its operands may differ from 0 and its result matters; counting knows it, so no rule."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="products with what the program itself sets to zero, or for what it hides, are not formed",
    sound="values are finite (A8), and far from what hides a score, so that its exponential is 0 beside any other's",
)
