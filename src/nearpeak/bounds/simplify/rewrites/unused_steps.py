"""Steps, rows, layers and units of recurrent layers of which nothing is used (by counting, without a rule)."""

from nearpeak.bounds.simplify.rewrites import Rewrite

REWRITE = Rewrite(
    kinds=("call",),
    rule=None,
    text="steps, rows, layers and units of a recurrent layer that nothing uses are not formed, rows all alike once",
    sound="a step depends on those before it alone, a row on no other row",
)
