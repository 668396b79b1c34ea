"""Selections: a product with one-hot rows is a gather (by the facts of values)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="a product with one-hot rows only picks rows",
    sound="which rows are picked is data (A9): one row is sure",
)
