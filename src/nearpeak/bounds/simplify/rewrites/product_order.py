"""Declaration, without a rule of its own, of the rewrite that orders a chain of linear maps: (A B) v = A (B v)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a chain of linear maps is formed in its cheapest order",
    sound="no nonlinearity lies between, and nothing else reads what is no longer formed; real arithmetic (A18)",
)
