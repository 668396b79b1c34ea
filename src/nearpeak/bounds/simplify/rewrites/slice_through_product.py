"""Only the part of a linear map's result that is used is formed: the last position's logits, a crop."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("view",),
    rule=None,
    text="only the needed part of a linear map's result is formed",
    sound="nothing else reads the rest",
)
