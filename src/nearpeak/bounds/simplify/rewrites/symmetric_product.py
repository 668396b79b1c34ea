"""A product that is its own transpose, as X X^T is, needs one of each two elements; counting knows it, so no rule."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="of a product that is its own transpose, one of each two elements is formed",
    sound="the operands are the same values with the two dimensions exchanged; a * b = b * a",
)
