"""The legal configurations of a tuning space, enumerated once, with distances between them."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearpeak.core.tuning.space import Configuration, TuningSpace
from nearpeak.errors import SpecError
from nearpeak.exchange.axis_expression import fulfilled, names_in

MOST_LEGAL = 1_000_000
"""Most legal configurations of a space: all of them are held in memory."""
_MOST_VISITED = 20_000_000
"""Most partial configurations that are looked at while legal ones are enumerated."""
Places = NDArray[np.int16]


class LegalSet:
    """Every legal configuration as the places of its values, one row each."""

    def __init__(self, space: TuningSpace, places: Places) -> None:
        """Keep the rows, which are distinct."""
        self.space, self.places = space, places
        most = np.array([max(len(parameter.settings) - 1, 1) for parameter in space.parameters])
        self.unit: NDArray[np.float64] = places / most
        """Places scaled to 0…1 for each parameter."""
        self._index = {row.tobytes(): index for index, row in enumerate(places)}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.places)

    def configuration(self, index: int) -> Configuration:
        """Return the values of one configuration."""
        pairs = zip(self.space.parameters, self.places[index], strict=True)
        return tuple(parameter.settings[place] for parameter, place in pairs)

    def index_of(self, configuration: Configuration) -> int | None:
        """Return the index of a configuration; none where it is not legal."""
        row = [
            parameter.settings.index(value)
            for parameter, value in zip(self.space.parameters, configuration, strict=True)
        ]
        return self.index_at(row)

    def index_at(self, places: Sequence[int]) -> int | None:
        """Return the index of a configuration by the places of its values; none where it is not legal."""
        return self._index.get(np.array(places, dtype=np.int16).tobytes())

    def nearest_unseen(self, places: Sequence[int], seen: NDArray[np.bool_]) -> int:
        """Return the legal configuration that nothing has proposed yet and that differs least from `places`.

        Fewest parameters that differ count first, then the distance of their values; ties go to the first.
        """
        exact = self.index_at(places)
        if exact is not None and not seen[exact]:
            return exact
        gaps = np.abs(self.places - np.array(places, dtype=np.int16))
        distance = (gaps > 0).sum(axis=1) + gaps.sum(axis=1) / (gaps.sum(axis=1).max() + 1.0)
        distance[seen] = np.inf
        return int(np.argmin(distance))


def combination_count(space: TuningSpace) -> int:
    """Return how many combinations of values there are, legal or not."""
    return math.prod(len(parameter.settings) for parameter in space.parameters)


def legal_set(space: TuningSpace, axes: Mapping[str, Any] = MappingProxyType({})) -> LegalSet:
    """Return the configurations that fulfil all constraints, in the order of the parameters' values.

    Args:
        axes: extents and formats of the case, which constraints may name.

    Raises:
        SpecError: a constraint uses an unknown name, no configuration is legal, or more than MOST_LEGAL are.

    >>> from nearpeak.core.tuning.space import Parameter
    >>> two = tuple(Parameter(name=name, settings=(1, 2, 4)) for name in "ab")
    >>> len(legal_set(TuningSpace(name="s", parameters=two, constraints=("a * b <= 4",))))
    6
    """
    if space.listed:
        rows = [[p.settings.index(v) for p, v in zip(space.parameters, listed, strict=True)] for listed in space.listed]
        legal = np.array(rows, dtype=np.int16)
        tests = [_Test(text, space, axes) for text in space.constraints]
        legal = legal[[all(test.holds(row) for test in tests) for row in legal]]
        legal = legal[np.sort(np.unique(legal, axis=0, return_index=True)[1])]
    else:
        legal = _enumerated(space, axes)
    if not len(legal):
        raise SpecError(f"{space.name}: no configuration is legal; {_culprit(space, axes)}")
    return LegalSet(space, legal)


class _Test:
    """A constraint whose value is computed once for each combination of the values that it uses."""

    def __init__(self, text: str, space: TuningSpace, axes: Mapping[str, Any]) -> None:
        names = [parameter.name for parameter in space.parameters]
        unknown = sorted(names_in(text) - {*names, *axes})
        if unknown:
            raise SpecError(f"constraint {text!r}: {unknown[0]} is neither a parameter nor an axis of the case")
        self._text, self._axes, self._known = text, axes, dict[tuple[int, ...], bool]()
        self._used = [place for place, name in enumerate(names) if name in names_in(text)]
        self._parameters = [space.parameters[place] for place in self._used]
        self.depth = max(self._used, default=0)

    def holds(self, row: Any) -> bool:
        key = tuple(int(row[place]) for place in self._used)
        known = self._known.get(key)
        if known is None:
            pairs = zip(self._parameters, key, strict=True)
            values = {parameter.name: parameter.settings[place] for parameter, place in pairs}
            known = self._known[key] = fulfilled(self._text, {**self._axes, **values})
        return known


def _enumerated(space: TuningSpace, axes: Mapping[str, Any]) -> Places:
    """Return all rows, extended parameter by parameter; a constraint is tested as soon as it has all its values."""
    tests = [_Test(text, space, axes) for text in space.constraints]
    rows = np.zeros((1, 0), dtype=np.int16)
    for depth, parameter in enumerate(space.parameters):
        count = len(parameter.settings)
        if len(rows) * count > _MOST_VISITED:
            raise SpecError(
                f"{space.name}: has more than {MOST_LEGAL:,} configurations; add constraints or fewer values"
            )
        choices = np.tile(np.arange(count, dtype=np.int16), len(rows))
        rows = np.column_stack([np.repeat(rows, count, axis=0), choices])
        for test in tests:
            if test.depth == depth:
                rows = rows[[test.holds(row) for row in rows]]
    if len(rows) > MOST_LEGAL:
        raise SpecError(f"{space.name}: has {len(rows):,} legal configurations; at most {MOST_LEGAL:,} are searched")
    return rows


def _culprit(space: TuningSpace, axes: Mapping[str, Any]) -> str:
    """Return which constraint alone excludes everything, or that only several together do."""
    for text in space.constraints:
        test = _Test(text, space, axes)
        used = [parameter if parameter.name in names_in(text) else None for parameter in space.parameters]
        shape = [1 if parameter is None else len(parameter.settings) for parameter in used]
        if math.prod(shape) <= MOST_LEGAL and not any(test.holds(row) for row in np.ndindex(*shape)):
            return f"constraint {text!r} never holds"
    return "its constraints exclude each other"
