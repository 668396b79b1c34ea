"""Symmetric products such as X X^T: one of each pair of mirrored elements is formed (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="of a product that is its own transpose, one of each two elements is formed",
    sound="the operands are the same values with the two dimensions exchanged; a * b = b * a",
)
