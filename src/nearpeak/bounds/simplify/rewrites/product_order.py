"""A chain of linear maps may be formed in any order: (A B) v = A (B v)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a chain of linear maps is formed in its cheapest order",
    sound="no nonlinearity lies between, and nothing else reads what is no longer formed; real arithmetic (A18)",
)
