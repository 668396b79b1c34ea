"""Elements of an input that the program's own conditions never select are not read (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("given",),
    rule=None,
    text="elements of inputs and weights that the program itself never picks are not read",
    sound="always, for conditions that the program decides; products with 0 where values are finite (A8)",
)
