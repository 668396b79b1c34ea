"""A sum or mean commutes with a linear map: sum the weights first, then multiply once."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("sum",),
    rule=None,
    text="a sum commutes with a linear map",
    sound="nothing but sums, factors, summands and moves lies between; real arithmetic (A18)",
)
