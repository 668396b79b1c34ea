"""A second-order optimizer beside a training step: how often and where it works, and what it adds to the step."""

from dataclasses import dataclass

from nearpeak.base.registry import unknown_name
from nearpeak.errors import SpecError

_WORDS = {
    "factors": "factor_interval_count", "inverses": "inverse_interval_count", "grid": "sub_grid_count",
}  # fmt: skip
"""Fields of a plan by the words that state them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOrderPlan:
    """How often and where a method does its work."""

    method: str = "kfac"
    """One of METHODS."""
    factor_interval_count: int = 1
    """Steps between two updates of the factors."""
    inverse_interval_count: int = 1
    """Steps between two updates of the inverses."""
    rank_count: int = 1
    """Data-parallel ranks."""
    sub_grid_count: int = 0
    """Ranks that do nothing but inverses; 0 for all ranks beside their own step."""

    def __post_init__(self) -> None:
        """Refuse intervals and sub-grids that cannot be."""
        if min(self.factor_interval_count, self.inverse_interval_count, self.rank_count) < 1:
            raise SpecError("second order: intervals and ranks must be at least 1")
        if not 0 <= self.sub_grid_count < self.rank_count:
            raise SpecError(
                f"second order: a sub-grid of {self.sub_grid_count} ranks leaves none of {self.rank_count} replicas "
                f"for the step; {f'grid=1 to {self.rank_count - 1}' if self.rank_count > 1 else 'no grid'} would"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOrderStep:
    """Mean time per step that a method adds."""

    method: str
    """Name of the method."""
    factor_s: float
    """Update of the factors."""
    reduce_s: float
    """All-reduce of the factors."""
    inverse_s: float
    """Inverses on the busiest rank, per update of the inverses."""
    broadcast_s: float
    """Handing out the inverses, per update of the inverses."""
    exposed_s: float
    """Inverses and their hand-out that the slack of the steps in between does not hide, per step."""
    update_s: float
    """Preconditioned updates."""
    sub_grid_s: float
    """What the step takes longer because ranks of the sub-grid compute no gradients."""
    job_ranks: tuple[int, ...]
    """Rank of each inverse."""

    @property
    def added_s(self) -> float:
        """Mean time per step that the method adds."""
        return self.factor_s + self.reduce_s + self.exposed_s + self.update_s + self.sub_grid_s


def second_order_of(text: str, rank_count: int) -> SecondOrderPlan:
    """Return the plan that words such as `kfac,factors=10,inverses=100,grid=4` state; `grid` is the sub-grid's ranks.

    Args:
        rank_count: data-parallel ranks.

    Raises:
        SpecError: a word is unknown, stated twice or no whole number, or the sub-grid leaves no rank.

    >>> second_order_of("kfac,inverses=100,grid=4", 64).sub_grid_count
    4
    """
    method, *words = (word.strip() for word in text.split(","))
    values: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in _WORDS:
            raise unknown_name("--optimizer word", name, tuple(_WORDS))
        if _WORDS[name] in values or not (value.isascii() and value.isdigit() and len(value) < 10):
            raise SpecError(f"--optimizer {word!r}: must be {name}=NUMBER, once")
        values[_WORDS[name]] = int(value)
    return SecondOrderPlan(method=method, rank_count=rank_count, **values)
