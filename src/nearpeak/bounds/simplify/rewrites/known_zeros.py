"""Known zeros: what tril and triu set to zero is neither computed nor multiplied (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="what tril and triu set to zero is neither formed nor multiplied",
    sound="values are finite (A8), so that 0 times any of them is 0",
)
