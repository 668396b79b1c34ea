"""Covering arrays: few rows in which every legal combination of a few parameters' levels occurs."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

Level = int | str | bool
Row = dict[str, Level]
Combination = tuple[tuple[str, Level], ...]
"""Levels of some parameters, in the order of the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering:
    """Rows that cover all combinations, and those that no row could be found for."""

    rows: tuple[Mapping[str, Level], ...]
    """One level for each parameter."""
    infeasible: Mapping[Combination, str]
    """Combinations without a legal row, with what the last trial was refused for."""


def covering(
    levels: Mapping[str, Sequence[Level]], strength: int, refusal: Callable[[Row], str],
    hopeful: Callable[[Row], bool] | None = None, restarts: int = 0,
) -> Covering:  # fmt: skip
    """Return rows in which every combination of `strength` parameters occurs that a legal row can have.

    The first level of each parameter is its usual one. A row starts from the first combination that is missing, the
    others at their usual levels; then each other parameter takes the level that adds most and leaves the row legal. A
    combination counts as infeasible when neither usual levels of the others nor one more unusual level make it legal,
    nor, with `hopeful`, a search among all rows. With `restarts`, further arrays are built whose rows settle the
    parameters in random orders, and the array with fewest rows counts: 22 instead of 28 rows for the pairs of six
    parameters of four levels, for the price of many more calls of `refusal`.

    Args:
        strength: how many parameters; at most all of them are combined.
        refusal: why a row is not legal; empty when it is.
        hopeful: whether a row that lacks some parameters may still become legal.
        restarts: how many further arrays are built, from seeds 0, 1, …; equal arguments give equal rows.

    >>> levels = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    >>> array = covering(levels, 2, lambda row: "no a without b" if row["a"] > row["b"] else "")
    >>> len(array.rows), array.infeasible
    (5, {(('a', 1), ('b', 0)): 'no a without b'})
    """
    strength = min(strength, len(levels))

    def legal(wanted: Combination) -> tuple[Row | None, str]:
        row, reason = legal_row(wanted, levels, refusal)
        if row is None and hopeful is not None:
            row = _searched_row(wanted, levels, refusal, hopeful)
        return row, reason

    trials = {combination: legal(combination) for combination in combinations_of(levels, 1)}
    alone = {
        combination: reason for combination, (row, reason) in trials.items() if row is None
    }  # what contains them needs no trial
    missing: dict[Combination, None] = {}
    infeasible: dict[Combination, str] = {}
    for wanted in combinations_of(levels, strength):
        reason = next((alone[(combination,)] for combination in wanted if (combination,) in alone), "")
        if reason:
            infeasible[wanted] = reason
        else:
            missing[wanted] = None
    builder = _ArrayBuilder(levels, strength, legal, refusal)
    arrays = [builder.rows(missing, None if seed < 0 else random.Random(seed)) for seed in range(-1, restarts)]
    infeasible |= {wanted: reason for wanted, (row, reason) in builder.legal_rows.items() if row is None}
    rows = min(arrays, key=len)
    for row in rows:
        for combination in builder.combinations(row):
            infeasible.pop(combination, None)
    return Covering(rows=tuple(rows), infeasible=infeasible)


def combinations_of(levels: Mapping[str, Sequence[Level]], strength: int) -> Iterator[Combination]:
    """Yield every combination of levels of every `strength` parameters.

    >>> list(combinations_of({"a": (1,), "b": (2, 3)}, 2))
    [(('a', 1), ('b', 2)), (('a', 1), ('b', 3))]
    """
    for names in combinations(levels, strength):
        for values in product(*(levels[name] for name in names)):
            yield tuple(zip(names, values, strict=True))


def legal_row(
    wanted: Combination, levels: Mapping[str, Sequence[Level]], refusal: Callable[[Row], str]
) -> tuple[Row | None, str]:
    """Return the wanted levels among usual ones, or with one more unusual one; or none and what was wrong.

    >>> legal_row((("a", 1),), {"a": (0, 1), "b": (0, 1)}, lambda row: "no a without b" if row["a"] > row["b"] else "")
    ({'a': 1, 'b': 1}, '')
    """
    usual: Row = {name: values[0] for name, values in levels.items()} | dict(wanted)
    reason = refusal(usual)
    if not reason:
        return usual, ""
    fixed = {name for name, _ in wanted}
    for name in levels:
        for value in () if name in fixed else levels[name][1:]:
            if not refusal(usual | {name: value}):
                return usual | {name: value}, ""
    return None, reason


_MOST_STEPS = 1000
"""Steps of the search for one legal row; combinations not found by then count as infeasible."""


def _searched_row(
    wanted: Combination, levels: Mapping[str, Sequence[Level]], refusal: Callable[[Row], str],
    hopeful: Callable[[Row], bool],
) -> Row | None:  # fmt: skip
    """Return a legal row with the wanted levels, or none; parameters with the fewest levels left come first."""
    left: list[Row] = [dict(wanted)] if hopeful(dict(wanted)) else []
    for _ in range(_MOST_STEPS):
        if not left:
            return None
        row = left.pop()
        grown = {
            name: [more for value in reversed(levels[name]) if hopeful(more := row | {name: value})]
            for name in levels if name not in row
        }  # fmt: skip
        if grown:
            _, fewest = min((len(rows), name) for name, rows in grown.items())
            left += grown[fewest]
        elif not refusal(row):
            return {name: row[name] for name in levels}
    return None


_TRIALS = 8
"""Random rows that are tried for each row of a random array."""


class _ArrayBuilder:
    """Arrays of rows that cover combinations, built greedily.

    Random ones as in AETG: Cohen, Dalal, Fredman, Patton, "The AETG system", IEEE Transactions on Software Engineering
    23(7), 1997.
    """

    def __init__(
        self, levels: Mapping[str, Sequence[Level]], strength: int,
        legal: Callable[[Combination], tuple[Row | None, str]], refusal: Callable[[Row], str],
    ) -> None:  # fmt: skip
        self.levels, self.strength, self.legal, self.refusal = levels, strength, legal, refusal
        self.positions = {name: position for position, name in enumerate(levels)}
        self.legal_rows: dict[Combination, tuple[Row | None, str]] = {}
        self.legality: dict[tuple[Level, ...], bool] = {}

    def rows(self, combinations: Iterable[Combination], draw: random.Random | None) -> list[Row]:
        """Return the rows of one array; without `draw`, parameters are settled in the order in which they are given."""
        missing = dict.fromkeys(combinations)
        rows: list[Row] = []
        while missing:
            wanted = next(iter(missing))
            if wanted not in self.legal_rows:
                self.legal_rows[wanted] = self.legal(wanted)
            start, _ = self.legal_rows[wanted]
            del missing[wanted]
            if start is None:
                continue
            trials = [self._fuller(start, wanted, order, missing, draw is None) for order in self._orders(wanted, draw)]
            rows.append(max(trials, key=lambda row: sum(part in missing for part in self.combinations(row))))
            for combination in self.combinations(rows[-1]):
                missing.pop(combination, None)
        return rows

    def _orders(self, wanted: Combination, draw: random.Random | None) -> list[dict[str, Sequence[Level]]]:
        """Return in which order the levels of the parameters that `wanted` leaves open are tried, for each trial."""
        levels = {name: values for name, values in self.levels.items() if name not in dict(wanted)}
        if draw is None:
            return [levels]
        return [
            {name: draw.sample(levels[name], len(levels[name])) for name in draw.sample(list(levels), len(levels))}
            for _ in range(_TRIALS)
        ]

    def combinations(self, row: Row) -> Iterator[Combination]:
        """Yield the combinations that occur in `row`."""
        return combinations(((name, row[name]) for name in self.levels), self.strength)

    def _fuller(
        self, row: Row, wanted: Combination, order: Mapping[str, Sequence[Level]], missing: Mapping[Combination, None],
        keep_usual: bool,
    ) -> Row:  # fmt: skip
        """Return the legal `row`, each parameter in `order` at the legal level that covers most missing combinations.

        A parameter of which no level covers any stays at its usual level with `keep_usual`, else takes the first level
        of the order: rows that repeat usual levels leave less to cover for the parameters that are settled after them.
        """
        settled = dict(wanted)
        for name, levels in order.items():
            others = [tuple(part) for part in combinations(settled.items(), self.strength - 1)]
            gains = {level: self._added(name, level, others, missing) for level in levels}
            for level in sorted(gains, key=gains.__getitem__, reverse=True):
                if level == row[name] or (keep_usual and gains[level] == 0):
                    break
                if self._is_legal(changed := row | {name: level}):
                    row = changed
                    break
            settled[name] = row[name]
        return row

    def _added(
        self, name: str, level: Level, others: Sequence[Combination], missing: Mapping[Combination, None]
    ) -> int:
        """Return how many missing combinations a level adds to those that are settled."""
        made = (tuple(sorted((*part, (name, level)), key=lambda pair: self.positions[pair[0]])) for part in others)
        return sum(combination in missing for combination in made)

    def _is_legal(self, row: Row) -> bool:
        key = tuple(row[name] for name in self.levels)
        if key not in self.legality:
            self.legality[key] = not self.refusal(row)
        return self.legality[key]
