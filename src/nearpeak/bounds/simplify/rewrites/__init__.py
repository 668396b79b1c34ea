"""Registry of algebraic rewrites, one file each: node kinds, rule, soundness condition and explanation."""

from dataclasses import dataclass
from functools import cache

from nearpeak.base.registry import Registry
from nearpeak.bounds.simplify.value_graph import KINDS, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One algebraic identity."""

    kinds: tuple[str, ...]
    """Kinds of node that it may replace."""
    of: tuple[str, ...] = ()
    """Kinds of the node's first input to which it applies; any when none is named."""
    rule: Rule | None
    """Gives the replacement; none for those that the search over orders of products applies."""
    text: str
    """What it says, for people."""
    sound: str
    """When it holds."""
    shown: bool = True
    """Whether a report names it; one that only tidies views is not named."""


REWRITES: Registry[Rewrite] = Registry.of_modules(
    "REWRITE", kind="rewrite", package=__name__, file=__file__, group="nearpeak.rewrites"
)
"""All rewrites by name."""


@cache
def rules() -> dict[tuple[str, str], tuple[tuple[str, Rule], ...]]:
    """Return names and rules by kind of node and kind of its first input, empty where it has none."""
    named = [(REWRITES[name], name) for name in REWRITES]
    return {
        (kind, source): tuple(
            (name, rewrite.rule)
            for rewrite, name in named
            if rewrite.rule is not None and kind in rewrite.kinds and (not rewrite.of or source in rewrite.of)
        )
        for kind in KINDS
        for source in ("", *KINDS)
    }
