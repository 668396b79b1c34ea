"""A mesh: the ranks of a job as a grid of parallel dimensions, innermost first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Named dimensions with their degrees; neighbouring ranks differ in the first dimension.

    >>> mesh = Mesh(dims=(("tp", 8), ("dp", 2), ("pp", 2)))
    >>> mesh.rank_count, mesh.stride("dp"), mesh.coordinate(9)
    (32, 8, {'tp': 1, 'dp': 1, 'pp': 0})
    >>> mesh.group("dp", 9)
    (1, 9)
    """

    dims: tuple[tuple[str, int], ...]
    """Name and degree of each dimension."""

    def __post_init__(self) -> None:
        """Refuse degrees below 1 and names that stand twice."""
        if len({name for name, _ in self.dims}) != len(self.dims):
            raise SpecError(f"mesh: a dimension stands twice in {[name for name, _ in self.dims]}")
        for name, degree in self.dims:
            if degree < 1:
                raise SpecError(f"mesh: {name}={degree} must be at least 1")

    @property
    def rank_count(self) -> int:
        """Ranks in all."""
        return prod(degree for _, degree in self.dims)

    def degree(self, dim: str) -> int:
        """Return the degree of a dimension; 1 for one that the mesh does not have."""
        return dict(self.dims).get(dim, 1)

    def stride(self, dim: str) -> int:
        """Return the distance of neighbouring ranks of a dimension."""
        step = 1
        for name, degree in self.dims:
            if name == dim:
                return step
            step *= degree
        return step

    def span(self, dim: str) -> int:
        """Return how many neighbouring ranks hold a whole group of a dimension."""
        return (self.degree(dim) - 1) * self.stride(dim) + 1

    def coordinate(self, rank: int) -> Mapping[str, int]:
        """Return the place of a rank along each dimension."""
        return {name: rank // self.stride(name) % degree for name, degree in self.dims}

    def rank(self, coordinate: Mapping[str, int]) -> int:
        """Return the rank at a place."""
        return sum(place * self.stride(name) for name, place in coordinate.items())

    def group(self, dim: str, rank: int) -> tuple[int, ...]:
        """Return the ranks of the group of a dimension that `rank` belongs to."""
        first = rank - self.coordinate(rank).get(dim, 0) * self.stride(dim)
        return tuple(first + place * self.stride(dim) for place in range(self.degree(dim)))

    def ranks(self) -> Iterator[int]:
        """Yield all ranks."""
        yield from range(self.rank_count)
