"""Rows that data pick from a table with fewer rows: what is worked out row by row has no more distinct rows."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nearpeak.bounds.simplify.affine_views import View, composed
from nearpeak.bounds.simplify.element_patterns import ElementSet
from nearpeak.bounds.simplify.operand_facts import picked_dimensions
from nearpeak.bounds.simplify.operator_arguments import free_dimensions, moved_axis
from nearpeak.bounds.simplify.product_sums import Product, contracts
from nearpeak.bounds.simplify.recurrent_parts import is_steps
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


class _Rows(NamedTuple):
    """Dimensions of a node along which all values follow from one position in a table."""

    picks: int
    """Node of the selection: which position it is; its complement where positions run backwards."""
    shape: tuple[int, ...]
    """Extents of its dimensions other than the positions."""
    distinct: int
    """Positions."""
    axes: tuple[int, ...]
    """Dimensions of the node."""
    view: View
    """How they run through the dimensions of the picks."""


_Factors = list[tuple[int, tuple[int, ...]]]
"""Node and labels of each factor of a product."""


def distinct_share(graph: Graph, live: Sequence[int], filled: Mapping[int, ElementSet]) -> dict[int, tuple[int, int]]:
    """Return by product how many of how many of its positions are distinct, where rows of a table are fewer.

    Args:
        filled: elements that may differ from 0, where that is known.
    """
    if not graph.picked:
        return {}
    rows: dict[int, tuple[_Rows, ...]] = {}
    shares = {}
    for number in live:
        node = graph[number]
        row = _rows_of(graph, number, rows, filled)
        if row:
            rows[number] = row
        if contracts(node) and len(node.inputs) > 1 and (share := _share(graph, node, rows)) is not None:
            shares[number] = share
    return shares


def _rows_of(
    graph: Graph, number: int, rows: Mapping[int, tuple[_Rows, ...]], filled: Mapping[int, ElementSet]
) -> tuple[_Rows, ...]:
    """Return what is known of a node whose inputs are known."""
    node = graph[number]
    if isinstance(node.options, Product):
        factors = _followed(graph, node, filled)
        return (*_of_product(node.options.out, factors, rows), *_picked(graph, node.options.out, factors, rows))
    drawn = isinstance(node.options, OperatorCall) and node.options.serial >= 0
    if drawn or not any(source in rows for source in node.inputs):
        return ()
    if isinstance(node.options, View):
        return tuple(seen for row in rows[node.inputs[0]] if (seen := _seen(node, row)) is not None)
    if node.kind in ("pointwise", "add"):
        every = dict.fromkeys(row for source in node.inputs for row in rows.get(source, ()))
        return tuple(row for row in every if all(_follows(graph, source, row, rows) for source in node.inputs))
    return _of_call(graph, node, rows) if node.kind == "call" else _of_move(graph, node, rows)


def _follows(graph: Graph, number: int, row: _Rows, rows: Mapping[int, tuple[_Rows, ...]]) -> bool:
    """Say whether a node has such rows, or the same values at every position along these dimensions."""
    node = graph[number]
    if node.kind == "constant" or row in rows.get(number, ()):
        return True
    groups = node.options.groups if isinstance(node.options, View) else ()
    return bool(groups) and all(axis < 0 for place in row.axes for axis, _, _ in groups[place])


def _followed(graph: Graph, node: Node, filled: Mapping[int, ElementSet]) -> _Factors:
    """Return the factors of a product without those that only scale rows: diagonal matrices, and vectors along rows.

    Rows that unlike elements scale differ, yet count as alike: that lowers a bound at most.
    """
    assert isinstance(node.options, Product)
    every: _Factors = list(zip(node.inputs, node.options.labels, strict=True))
    longer = {label for _, labels in every if len(labels) > 1 for label in labels}
    factors = [factor for factor in every if len(factor[1]) > 1 or not longer.issuperset(factor[1])]
    for factor in factors:
        number, labels = factor
        left = [other for other in factors if other != factor]
        outer = [label for label in labels if label in node.options.out]
        if len(outer) != 1 or len(labels) != 2 or not _is_diagonal(graph, number, filled.get(number)):
            continue
        if not any(set(labels) <= set(other) for _, other in left):
            named = dict.fromkeys(labels, outer[0])
            factors = [(n, tuple(named.get(label, label) for label in other)) for n, other in left]
    return factors


def _is_diagonal(graph: Graph, number: int, filled: ElementSet) -> bool:
    """Say whether all elements of a square matrix other than those of its diagonal are known to be 0."""
    rows, columns = graph[number].shape
    if filled is None or rows != columns or filled.array.shape != (rows, rows):
        return False
    return bool(np.count_nonzero(filled.array) == np.count_nonzero(filled.array.diagonal()))


def _picked(
    graph: Graph, out: Sequence[int], factors: _Factors, rows: Mapping[int, tuple[_Rows, ...]]
) -> tuple[_Rows, ...]:  # fmt: skip
    """Return the rows of a product that picks from a table with fewer rows than it has, or with fewer distinct ones."""
    for place, (number, labels) in enumerate(factors):
        picked = picked_dimensions(graph, number)
        if not picked or any(labels[axis] in out for axis in picked):
            continue
        along = [label for axis, label in enumerate(labels) if axis not in picked]
        shape = tuple(n for axis, n in enumerate(graph[number].shape) if axis not in picked)
        left = [factor for at, factor in enumerate(factors) if at != place]
        used = [axis for axis in picked if any(labels[axis] in other for _, other in left)]  # else it repeats rows
        distinct = prod(graph[number].shape[axis] for axis in used)
        if len(used) == 1:
            distinct = min([distinct, *_distinct(left, labels[used[0]], rows)])
        if set(along) <= set(out) and prod(shape) > distinct and all(set(other).isdisjoint(along) for _, other in left):
            groups = tuple(((axis, 1, n),) if n > 1 else () for axis, n in enumerate(shape))
            view = View(groups, (0,) * len(along))
            return (_Rows(number, shape, distinct, tuple(map(out.index, along)), view),)
    return ()


def _distinct(factors: _Factors, label: int, rows: Mapping[int, tuple[_Rows, ...]]) -> list[int]:
    """Return how many positions along a label are distinct where one factor, or all with it, have such rows."""
    moved = [factor for factor in factors if label in factor[1]]
    (number, labels), *more = moved or [(-1, ())]
    return [
        row.distinct for row in rows.get(number, ())
        if tuple(labels[axis] for axis in row.axes) == (label,)
        and all(_along(rows.get(n, ()), other, (label,), row) for n, other in more)
    ]  # fmt: skip


def _seen(node: Node, row: _Rows) -> _Rows | None:
    """Return rows as a view shows them; none where it mixes them with other dimensions."""
    assert isinstance(node.options, View)
    place_of = {axis: place for place, axis in enumerate(row.axes)}
    axes, groups = [], []
    for place, group in enumerate(node.options.groups):
        along = {axis in place_of for axis, _, _ in group if axis >= 0}
        if len(along) > 1:
            return None
        if along == {True}:
            axes.append(place)
            groups.append(tuple((place_of.get(axis, -1), step, n) for axis, step, n in group))
    starts = tuple(node.options.starts[axis] for axis in row.axes)
    view = composed(View(tuple(groups), starts), row.view, row.shape) if axes else None
    return None if view is None else row._replace(axes=tuple(axes), view=view)


def _of_product(out: Sequence[int], factors: _Factors, rows: Mapping[int, tuple[_Rows, ...]]) -> tuple[_Rows, ...]:
    """Return the rows of a product: those along dimensions that it keeps and that no other factor varies along."""
    known: dict[_Rows, None] = {}
    for number, labels in factors:
        for row in rows.get(number, ()):
            along = tuple(labels[axis] for axis in row.axes)
            others = [(n, other) for n, other in factors if n != number and set(other) & set(along)]
            alike = all(_along(rows.get(n, ()), other, along, row) for n, other in others)
            if set(along) <= set(out) and alike:
                known[row._replace(axes=tuple(map(out.index, along)))] = None
    return tuple(known)


def _along(known: Sequence[_Rows], labels: Sequence[int], along: Sequence[int], row: _Rows) -> bool:
    """Say whether a factor has the same rows along the same labels."""
    return any((other.picks, other.view) == (row.picks, row.view)
               and tuple(labels[axis] for axis in other.axes) == tuple(along) for other in known)  # fmt: skip


def _of_move(graph: Graph, node: Node, rows: Mapping[int, tuple[_Rows, ...]]) -> tuple[_Rows, ...]:
    """Return the rows of what only moves elements along other dimensions, or turns them round."""
    moved = {"turned": node.options, "join": (node.options,)}.get(node.kind, ())
    if node.kind == "spread":
        shape = graph[node.inputs[0]].shape
        moved = tuple(axis for axis, (n, whole) in enumerate(zip(shape, node.shape, strict=True)) if n != whole)
    elif node.kind not in ("turned", "join"):
        return ()
    every = dict.fromkeys(row for source in node.inputs for row in rows.get(source, ()))
    if node.kind == "turned":  # the same positions from the last one on
        return tuple(row._replace(picks=~row.picks) if set(row.axes) <= set(moved) else row for row in every
                     if set(row.axes) <= set(moved) or not set(row.axes) & set(moved))  # fmt: skip
    return tuple(
        row for row in every
        if not set(row.axes) & set(moved) and all(_follows(graph, source, row, rows) for source in node.inputs)
    )  # fmt: skip


def _of_call(graph: Graph, node: Node, rows: Mapping[int, tuple[_Rows, ...]]) -> tuple[_Rows, ...]:
    """Return the rows of an operator that works on each row alone."""
    free, axis = free_dimensions(graph, node), moved_axis(node)
    if is_steps(node):  # rows of the inputs and of the first states
        free = {1: {0: 1} | dict.fromkeys(range(1, 1 + node.options.value("states")), 0)}
    if axis is not None and len(graph[node.inputs[0]].shape) == len(node.shape):
        return _picked_again(node, axis, rows.get(node.inputs[0], ()))
    known: dict[_Rows, None] = {}
    for place, source in enumerate(node.inputs):
        for row in rows.get(source, ()):
            axes = tuple(next((axis for axis, moves in free.items() if moves.get(place) == n), -1) for n in row.axes)
            if -1 in axes:
                continue
            moved = [(other, tuple(free[axis].get(at, -1) for axis in axes)) for at, other in enumerate(node.inputs)]
            if all(set(at) == {-1} or _follows(graph, other, row._replace(axes=at), rows) for other, at in moved):
                known[row._replace(axes=axes)] = None
    return tuple(known)


def _picked_again(node: Node, axis: int, rows: Sequence[_Rows]) -> tuple[_Rows, ...]:
    """Return the rows of what picks along one dimension: those along others, and of few those few."""
    extent = node.shape[axis]
    whole = View((((0, 1, extent),) if extent > 1 else (),), (0,))
    return tuple(
        row if axis not in row.axes else _Rows(node.inputs[1], (extent,), row.distinct, (axis,), whole)
        for row in rows if axis not in row.axes or row.axes == (axis,)
    )  # fmt: skip


def _share(graph: Graph, node: Node, rows: Mapping[int, tuple[_Rows, ...]]) -> tuple[int, int] | None:
    """Return how many of how many positions of a product are distinct; none where all may be.

    Along dimensions of the result all factors that are summed over must have these rows, along sums any: what is
    multiplied by one row of the table is added up before.
    """
    assert isinstance(node.options, Product)
    factors = list(zip(node.inputs, node.options.labels, strict=True))
    sizes = {label: n for number, labels in factors for label, n in zip(labels, graph[number].shape, strict=True)}
    out, fewer = set(node.options.out), dict[frozenset[int], tuple[int, int]]()
    for place, (number, labels) in enumerate(factors):
        for row in rows.get(number, ()):
            along = tuple(labels[axis] for axis in row.axes)
            left_labels = {label for label in along if label in out}
            others = [
                factor for at, factor in enumerate(factors) if at != place and left_labels.intersection(factor[1])
            ]
            alike = all(set(other) <= out or _along(rows.get(n, ()), other, along, row) for n, other in others)
            distinct = row.distinct
            for part in (left_labels if alike else set(), set(along) - out):
                positions = prod(sizes[label] for label in part)
                if distinct < min(positions, fewer.get(frozenset(part), (positions, 0))[0]):
                    fewer[frozenset(part)] = (distinct, positions)
    count, total, used = 1, 1, frozenset[int]()
    for group, (distinct, positions) in sorted(fewer.items(), key=lambda item: item[1][0] / item[1][1]):
        if used.isdisjoint(group):
            count, total, used = count * distinct, total * positions, used | group
    return (count, total) if fewer else None
