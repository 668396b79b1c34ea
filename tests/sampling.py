"""Fixed samples of long parametrisations: `make test` runs the sample, `make bench` the whole."""

import itertools
import random

import pytest


def long(*values):
    """A parameter set, or one value, that the sweep of `make bench` alone runs."""
    return pytest.param(*values, marks=pytest.mark.long)


def first_of_each(sets, kind=lambda values: values[0], count=None):
    """Parameter sets; those are no `long` ones which are the first of their kind: else of their first value.

    With `count`, only the first of so many kinds, always the same ones, drawn from all.

    >>> [one.values for one in first_of_each([("a", 1), ("a", 2), long("b", 3), ("b", 4)]) if not one.marks]
    [('a', 1), ('b', 4)]
    >>> len([one for one in first_of_each([(letter, 1) for letter in "abcde"], count=2) if not one.marks])
    2
    """
    sets, known = list(sets), set()
    kinds = sorted({kind(one) for one in sets if not hasattr(one, "marks")})
    drawn = set(kinds if count is None else random.Random(0).sample(kinds, min(count, len(kinds))))
    for one in sets:
        if hasattr(one, "marks"):
            yield one
        else:
            yield pytest.param(*one) if kind(one) in drawn - known else long(*one)
            known.add(kind(one))


def sampled(values, count, seed=0):
    """Values; those are no `long` ones which are among `count` drawn ones, always the same.

    >>> len([one for one in sampled(range(100), 5) if not one.marks])
    5
    """
    values = list(values)
    kept = set(random.Random(seed).sample(range(len(values)), min(count, len(values))))
    return [pytest.param(value) if place in kept else long(value) for place, value in enumerate(values)]


def in_turn(first, *others, count=None):
    """All combinations of some axes; those are no `long` ones in which each value of the longest, `first`, occurs once.

    With `count`, only so many of its values occur, evenly spread over it.

    The values of the others take turns, so that each of them and each pair of them occurs where `first` is long enough.

    >>> [tuple(one.values) for one in in_turn("abcd", "xy", "12") if not one.marks]
    [('a', 'x', '1'), ('b', 'y', '1'), ('c', 'x', '2'), ('d', 'y', '2')]
    """
    first, kept = list(first), set()
    turns = min(count or len(first), len(first))
    for turn in range(turns):
        places, rest = [turn * len(first) // turns], turn
        for axis in others:
            places.append(rest % len(axis))
            rest //= len(axis)
        kept.add(tuple(places))
    axes = [list(enumerate(axis)) for axis in (first, *others)]
    for combination in itertools.product(*axes):
        values = [value for _, value in combination]
        yield pytest.param(*values) if tuple(place for place, _ in combination) in kept else long(*values)
