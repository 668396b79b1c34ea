"""States of zero: recurrent layers that begin with them form no products with them (by the facts of values)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a recurrent layer that begins with zero forms no products with its first state",
    sound="values are finite (A8), so that 0 times any of them is 0",
)
