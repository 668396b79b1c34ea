"""Entry of the rewrite "a product with zero is zero": its text and soundness; refined_step applies it."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a product with zero is zero",
    sound="values are finite (A8), so that 0 times any of them is 0",
)
