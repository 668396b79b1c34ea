"""Guessed sizes: calls on tensors whose size data decide count nothing (by the facts of values)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("product",),
    rule=None,
    text="what handles a number of elements that was guessed counts nothing",
    sound="data may decide that there are none",
)
