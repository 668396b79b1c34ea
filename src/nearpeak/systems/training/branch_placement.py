"""Branches of a model's graph on disjoint groups of ranks: list scheduling, and an exact search for few branches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from nearpeak.errors import SpecError

EXACT_BRANCHES = 12
"""Branches up to which the best placement is searched."""
MOST_VISITS = 100_000
"""Partial placements that the search visits before it settles for the best one so far."""
_Placed = tuple[float, float, int]
"""Start, end and ranks of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A part of the graph that runs on one group of ranks."""

    name: str
    """Name."""
    time_s: Mapping[int, float]
    """Time by number of ranks; only these numbers are considered."""
    needs: tuple[str, ...] = ()
    """Branches whose results it takes."""
    boundary_s: float = 0.0
    """Time to bring those results from other ranks; none where it and all it needs run on all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlacement:
    """When each branch runs, on how many ranks."""

    rank_count: Mapping[str, int]
    """Ranks of each branch."""
    start_s: Mapping[str, float]
    """Start of each branch."""
    time_s: float
    """Time until all are done."""
    bound_s: float
    """Larger of the critical path and of all work over all ranks: no placement beats it."""
    serial_s: float
    """Time of one branch after the other, each on the number of ranks that is fastest for it."""
    is_exact: bool
    """Whether no other placement is faster."""


def place_branches(branches: Sequence[Branch], rank_count: int) -> BranchPlacement:
    """Return the fastest placement found; for up to EXACT_BRANCHES branches a branch-and-bound search proves it.

    Twelve branches of one size each, or eight of three sizes, are proved in under a second; with more sizes the search
    may stop at MOST_VISITS, and `is_exact` says so.

    Raises:
        SpecError: a branch fits on no number of ranks, needs one that is not there, or branches need each other.

    >>> left, right = (Branch(name=name, time_s={1: 4.0, 2: 3.0}) for name in ("left", "right"))
    >>> place_branches([left, right], 2).time_s, place_branches([left, right], 2).serial_s
    (4.0, 6.0)
    """
    search = _Search(branches, rank_count)
    search.place_listed()
    is_exact = len(branches) <= EXACT_BRANCHES and search.place_all()
    return BranchPlacement(
        rank_count={name: placed[2] for name, placed in search.best.items()},
        start_s={name: placed[0] for name, placed in search.best.items()},
        time_s=search.best_s, bound_s=search.bound_s, serial_s=search.serial_s,
        is_exact=is_exact or search.best_s <= search.bound_s * (1 + 1e-12),
    )  # fmt: skip


class _State(NamedTuple):
    """Branches placed so far, in order of their starts; `last` is the start and number of the last one."""

    placed: dict[str, _Placed]
    last: tuple[float, int]


class _Search:
    """Placements of one set of branches."""

    def __init__(self, branches: Sequence[Branch], rank_count: int) -> None:
        self._branches = {branch.name: branch for branch in branches}
        self._ranks = rank_count
        self._index = {name: place for place, name in enumerate(self._branches)}
        if len(self._branches) < len(branches) or not branches:
            raise SpecError("branches: at least one is needed, and each name may stand once")
        self._options = {branch.name: self._widths(branch) for branch in branches}
        self._tail: dict[str, float] = {}
        for name in reversed(self._order()):
            after = [self._tail[other.name] for other in branches if name in other.needs]
            self._tail[name] = min(time for _, time in self._options[name]) + max(after, default=0.0)
        self._area = {name: min(width * time for width, time in rows) for name, rows in self._options.items()}
        self.bound_s = max(*self._tail.values(), sum(self._area.values()) / rank_count)
        self.serial_s = sum(
            min(time for _, time in rows) + self._branches[name].boundary_s for name, rows in self._options.items()
        )
        if all(rows[-1][0] == rank_count for rows in self._options.values()):  # nothing crosses
            self.serial_s = min(self.serial_s, sum(rows[-1][1] for rows in self._options.values()))
        self.best: dict[str, _Placed] = {}
        self.best_s, self._visits = inf, 0
        self._seen: dict[frozenset[str], list[tuple[tuple[float, int], dict[str, _Placed]]]] = {}

    def _widths(self, branch: Branch) -> list[tuple[int, float]]:
        """Return numbers of ranks and times; more ranks only where they are faster, or all, which nothing crosses."""
        rows: list[tuple[int, float]] = []
        for width, time in sorted(branch.time_s.items()):
            if 0 < width <= self._ranks and (not rows or time < rows[-1][1] or width == self._ranks):
                rows.append((width, time))
        if not rows or min(time for _, time in rows) < 0:
            raise SpecError(
                f"branch {branch.name}: needs a time of at least 0 on 1 to {self._ranks} ranks, got "
                f"{dict(branch.time_s)}"
            )
        return rows

    def _order(self) -> list[str]:
        """Return the branches, each after those it needs."""
        order: list[str] = []
        left = dict(self._branches)
        while left:
            ready = [name for name, branch in left.items() if all(need in order for need in branch.needs)]
            if not ready:
                name, branch = next(iter(left.items()))
                unknown = [need for need in branch.needs if need not in self._branches]
                why = f"needs {unknown[0]!r}, which is no branch" if unknown else "and others need each other"
                raise SpecError(f"branch {name}: {why}")
            order += ready
            left = {name: branch for name, branch in left.items() if name not in ready}
        return order

    def place_listed(self) -> None:
        """Place the branch with the longest way to the end first, on ranks that end it first, the fastest, or all."""
        for rule in ("first", "fastest", "widest"):
            placed: dict[str, _Placed] = {}
            while len(placed) < len(self._branches):
                name = max(self._eligible(placed), key=lambda name: self._tail[name])
                rows = self._options[name]
                rows = [min(rows, key=lambda row: row[1])] if rule == "fastest" else rows
                rows = rows[-1:] if rule == "widest" else rows
                starts = [(self._start(placed, name, width, 0.0), width, time) for width, time in rows]
                start, width, time = min(starts, key=lambda row: (row[0] + row[2], row[1] * row[2]))
                placed[name] = (start, start + time, width)
            self._keep(placed)

    def place_all(self) -> bool:
        """Search all placements in order of their starts; return whether the search came to its end."""
        self._visits = 0
        self._visit(_State({}, (0.0, -1)))
        return self._visits <= MOST_VISITS

    def _visit(self, state: _State) -> None:
        if len(state.placed) == len(self._branches):
            self._keep(state.placed)
            return
        self._visits += 1
        if self._visits > MOST_VISITS or self._least(state) >= self.best_s * (1 - 1e-12):
            return
        if self._is_dominated(state):
            return
        steps = []
        for name in self._eligible(state.placed):
            for width, time in self._options[name]:
                start = self._start(state.placed, name, width, state.last[0])
                if (start, self._index[name]) > state.last:
                    steps.append((start + self._tail[name], start, name, width, time))
        for _, start, name, width, time in sorted(steps):
            placed = {**state.placed, name: (start, start + time, width)}
            self._visit(_State(placed, (start, self._index[name])))

    def _least(self, state: _State) -> float:
        """Return a time that no completion of a partial placement beats: no more branches start before its last one."""
        now = state.last[0]
        ways, work, last = [now], 0.0, now
        for name, branch in self._branches.items():
            if name in state.placed:
                _, end, width = state.placed[name]
                last = max(last, end)
                work += width * max(0.0, end - now)
            else:
                ready = max([state.placed[need][1] for need in branch.needs if need in state.placed], default=0.0)
                ways.append(max(ready, now) + self._tail[name])
                work += self._area[name]
        return max(last, *ways, now + work / self._ranks)

    def _is_dominated(self, state: _State) -> bool:
        """Return whether the same branches were placed before so that what follows can be as early; remember them."""
        key = frozenset(state.placed)
        rows = self._seen.setdefault(key, [])
        now = state.last
        for last, placed in rows:
            if last <= now and all(
                (end <= max(state.placed[name][1], now[0]) and (width <= state.placed[name][2] or end <= now[0]))
                and (width == self._ranks or state.placed[name][2] < self._ranks)
                for name, (_, end, width) in placed.items()
            ):
                return True
        if len(rows) < 40:
            rows.append((now, state.placed))
        return False

    def _eligible(self, placed: Mapping[str, _Placed]) -> list[str]:
        return [name for name, branch in self._branches.items()
                if name not in placed and all(need in placed for need in branch.needs)]  # fmt: skip

    def _start(self, placed: Mapping[str, _Placed], name: str, width: int, after: float) -> float:
        """Return the first moment at which a branch has its inputs and enough ranks until it ends."""
        branch = self._branches[name]
        time = dict(self._options[name])[width]
        start = after
        for need in branch.needs:
            crosses = width < self._ranks or placed[need][2] < self._ranks
            start = max(start, placed[need][1] + (branch.boundary_s if crosses else 0.0))
        moments = sorted({start, *(end for _, end, _ in placed.values() if end > start)})
        for moment in moments:
            events = [moment, *(begin for begin, _, _ in placed.values() if moment < begin < moment + time)]
            if all(self._busy(placed, event) + width <= self._ranks for event in events):
                return moment
        return moments[-1]

    @staticmethod
    def _busy(placed: Mapping[str, _Placed], moment: float) -> int:
        return sum(width for start, end, width in placed.values() if start <= moment < end)

    def _keep(self, placed: Mapping[str, _Placed]) -> None:
        time = max(end for _, end, _ in placed.values())
        if time < self.best_s:
            self.best, self.best_s = dict(placed), time
