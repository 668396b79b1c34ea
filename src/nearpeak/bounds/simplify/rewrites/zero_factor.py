"""Products with a factor of zero are zero (by the facts of values)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a product with zero is zero",
    sound="values are finite (A8), so that 0 times any of them is 0",
)
