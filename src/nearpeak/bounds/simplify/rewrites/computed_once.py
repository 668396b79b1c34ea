"""Common subexpressions: the same operator on the same operands is computed once (by hash-consing, no rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product", "call"),
    rule=None,
    text="the same operator on the same operands is computed once",
    sound="operators that draw random numbers are told apart",
)
