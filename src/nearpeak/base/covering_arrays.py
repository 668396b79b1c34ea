"""Covering arrays: few rows in which every legal combination of a few parameters' levels occurs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    hopeful: Callable[[Row], bool] | None = None,
) -> Covering:  # fmt: skip
    """Return rows in which every combination of `strength` parameters occurs that a legal row can have.

    The first level of each parameter is its usual one. A row starts from the first combination that is missing, the
    others at their usual levels; then each other parameter takes the level that adds most and leaves the row legal. A
    combination counts as infeasible when neither usual levels of the others nor one more unusual level make it legal,
    nor, with `hopeful`, a search among all rows.

    Args:
        strength: how many parameters; at most all of them are combined.
        refusal: why a row is not legal; empty when it is.
        hopeful: whether a row that lacks some parameters may still become legal.

    >>> levels = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    >>> found = covering(levels, 2, lambda row: "no a without b" if row["a"] > row["b"] else "")
    >>> len(found.rows), found.infeasible
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
    rows: list[Row] = []
    while missing:
        wanted = next(iter(missing))
        row, reason = legal(wanted)
        if row is None:
            infeasible[wanted] = reason
            del missing[wanted]
            continue
        row = _fuller(row, wanted, levels, strength, missing, refusal)
        rows.append(row)
        for combination in combinations(((name, row[name]) for name in levels), strength):
            missing.pop(combination, None)
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


def _fuller(
    row: Row, wanted: Combination, levels: Mapping[str, Sequence[Level]], strength: int,
    missing: Mapping[Combination, None], refusal: Callable[[Row], str],
) -> Row:  # fmt: skip
    """Return the legal `row` with the other parameters at those legal levels that cover most missing combinations."""
    order = {name: position for position, name in enumerate(levels)}
    fixed = {name for name, _ in wanted}
    settled = {name: row[name] for name in levels if name in fixed}
    for name in levels:
        if name in fixed:
            continue
        others = [tuple(part) for part in combinations(settled.items(), strength - 1)]
        gains = {value: _added(name, value, others, order, missing) for value in levels[name]}
        for value in sorted(levels[name], key=lambda value, gains=gains: -gains[value]):  # type: ignore[misc]
            if gains[value] == 0 or value == row[name]:
                break
            if not refusal(row | {name: value}):
                row = row | {name: value}
                break
        settled[name] = row[name]
    return row


def _added(
    name: str,
    value: Level,
    others: Sequence[Combination],
    order: Mapping[str, int],
    missing: Mapping[Combination, None],
) -> int:
    """Return how many missing combinations a level adds to those that are settled."""
    made = (tuple(sorted((*part, (name, value)), key=lambda pair: order[pair[0]])) for part in others)
    return sum(combination in missing for combination in made)
