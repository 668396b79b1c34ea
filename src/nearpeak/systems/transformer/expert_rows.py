"""Rows of the experts of one rank under a load distribution."""

from dataclasses import dataclass
from functools import lru_cache

from nearpeak.core.systems.transformer import Experts
from nearpeak.errors import SpecError
from nearpeak.ops.shared.expert_load import counts_of

_SAMPLED_TOKENS = 16_384
"""Tokens beyond which a load is sampled at this many and scaled: its relative spread only falls with more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRows:
    """Rows of the experts that one rank holds."""

    rows: tuple[int, ...]
    """Rows of each expert."""

    @property
    def total(self) -> int:
        """Rows of all its experts."""
        return sum(self.rows)

    @property
    def load(self) -> str:
        """Rows as a load of grouped_gemm."""
        return "counts rows=" + ",".join(map(str, self.rows))


@lru_cache(maxsize=4096)
def busiest_expert_rows(experts: Experts, tokens: int, ep: int, load: str) -> ExpertRows:
    """Return the rows of the experts of the rank that has most, which all other ranks wait for.

    Args:
        tokens: tokens of all ranks of the expert-parallel group together.
        load: `balanced`, or a load of grouped_gemm without its top_k (`uniform seed=0`, `zipf exponent=0.5`).

    >>> experts = Experts(count=8, per_token=2, width=16)
    >>> busiest_expert_rows(experts, 16, 2, "balanced").rows
    (4, 4, 4, 4)
    >>> busiest_expert_rows(experts, 16, 2, "zipf exponent=1 seed=0").total
    23

    Raises:
        SpecError: the load is not known.
    """
    if experts.count % ep:
        raise SpecError(f"ep={ep} does not divide {experts.count} experts")
    local, rows = experts.count // ep, tokens * experts.per_token
    if load == "balanced":
        share = rows // ep
        return ExpertRows(rows=tuple(share // local + (place < share % local) for place in range(local)))
    sampled = min(tokens, _SAMPLED_TOKENS)
    counts = counts_of(f"{load} top_k={experts.per_token}", sampled * experts.per_token, experts.count)
    ranks = [counts[first : first + local] for first in range(0, experts.count, local)]
    busiest = max(ranks, key=sum)
    return ExpertRows(rows=tuple(round(count * tokens / sampled) for count in busiest))
