"""Sums of products (einsum terms): construction, substitution of one into another, and normal form."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import Factor, View, factors, row_major, view
from nearpeak.bounds.simplify.value_graph import Graph, Node

Index = tuple[int, tuple[tuple[int, int], ...]]
"""Position along a dimension: where it starts, and how far each label moves it."""


class Product(NamedTuple):
    """Options of a `product`: result[out] = factor * sum over all other labels of the product of the inputs."""

    labels: tuple[tuple[int, ...], ...]
    """Label of each dimension of each input."""
    out: tuple[int, ...]
    """Label of each dimension of the result."""
    factor: float
    """What the sum is multiplied by."""


class Term(NamedTuple):
    """A sum over products whose operands are indexed freely; labels that no dimension of the result has are summed."""

    operands: tuple[tuple[int, tuple[Index, ...]], ...]
    """Node, and index of each of its dimensions."""
    axes: tuple[tuple[int, ...], ...]
    """Labels of each dimension of the result, the outermost first."""
    sizes: Mapping[int, int]
    """Extent of each label."""
    factor: float = 1.0
    """What the sum is multiplied by."""


def term_of(graph: Graph, number: int) -> Term:
    """Return a node as a term: products and views expanded, other nodes as single operands."""
    node = graph[number]
    if isinstance(node.options, Product):
        return opened(graph, node)
    if isinstance(node.options, View):
        return view_term(graph, node.inputs[0], node.options)
    return _leaf(graph, number)


def opened(graph: Graph, node: Node) -> Term:
    """Return the term that a product computes."""
    assert isinstance(node.options, Product)
    names = {label: graph.label() for labels in node.options.labels for label in labels}
    operands = []
    sizes: dict[int, int] = {}
    for source, labels in zip(node.inputs, node.options.labels, strict=True):
        sizes |= {names[label]: n for label, n in zip(labels, graph[source].shape, strict=True)}
        operands.append((source, tuple((0, ((names[label], 1),)) for label in labels)))
    return Term(tuple(operands), tuple((names[label],) for label in node.options.out), sizes, node.options.factor)


def view_term(graph: Graph, source: int, options: View) -> Term:
    """Return the term that a view is."""
    moves: list[list[tuple[int, int]]] = [[] for _ in options.starts]
    axes, sizes = [], {}
    for group in options.groups:
        labels = []
        for axis, step, extent in group:
            label = graph.label()
            sizes[label] = extent
            labels.append(label)
            if axis >= 0:
                moves[axis].append((label, step))
        axes.append(tuple(labels))
    index = tuple((start, tuple(axis_moves)) for start, axis_moves in zip(options.starts, moves, strict=True))
    return Term(((source, index),), tuple(axes), sizes)


def merged(graph: Graph, outer: Term, position: int, inner: Term) -> Term | None:
    """Return `outer` with its operand at `position` replaced by what `inner` computes; none where indices do not fit.

    Each dimension of the operand runs through one or more labels of `inner`: these take over the index.
    """
    _, indices = outer.operands[position]
    used = [label for _, moves in indices for label, _ in moves]
    if len(set(used)) < len(used):
        return None
    rest = (*outer.operands[:position], *outer.operands[position + 1 :])
    outer = outer._replace(operands=rest)
    replaced: dict[int, Index] = {}
    for axis, (start, moves) in enumerate(indices):
        labels = inner.axes[axis]
        digits = row_major([inner.sizes[label] for label in labels])
        digit_moves: list[list[tuple[int, int]]] = [[] for _ in labels]
        for label, step in moves:
            if outer.sizes[label] == 1:
                continue
            split_factors = factors(outer.sizes[label], step, digits)
            if split_factors is None or any(index < 0 for index, _, _ in split_factors):
                return None
            parts = [label]
            if len(split_factors) > 1:
                parts = [graph.label() for _ in split_factors]
                outer = divided(outer, label, dict(zip(parts, (n for _, _, n in split_factors), strict=True)))
            for part, (index, times, _) in zip(parts, split_factors, strict=True):
                digit_moves[index].append((part, times))
        begins = [0] * len(labels)
        for index, stride, extent in digits:
            begins[index] = start // stride % extent
        ends = [b + sum(s * (outer.sizes[m] - 1) for m, s in o) for b, o in zip(begins, digit_moves, strict=True)]
        if any(end >= inner.sizes[label] for end, label in zip(ends, labels, strict=True)):
            return None
        replaced |= {label: (b, tuple(o)) for label, b, o in zip(labels, begins, digit_moves, strict=True)}
    operands = tuple(
        (node, tuple(_substituted(part_index, replaced) for part_index in index)) for node, index in inner.operands
    )
    sizes = {label: n for label, n in inner.sizes.items() if label not in replaced}
    return Term((*outer.operands, *operands), outer.axes, {**outer.sizes, **sizes}, outer.factor * inner.factor)


def divided(term: Term, label: int, parts: Mapping[int, int]) -> Term:
    """Return the term with `label` replaced by several that together run through the same positions."""
    strides = {part: prod(list(parts.values())[place + 1 :]) for place, part in enumerate(parts)}

    def moved(index: Index) -> Index:
        start, moves = index
        opened = [
            (part, step * strides[part]) if other_label == label else (other_label, step)
            for other_label, step in moves
            for part in (parts if other_label == label else (other_label,))
        ]
        return start, tuple(opened)

    operands = tuple((node, tuple(map(moved, index))) for node, index in term.operands)
    axes = tuple(
        tuple(p for other_label in axis for p in (parts if other_label == label else (other_label,)))
        for axis in term.axes
    )
    sizes = {other_label: n for other_label, n in term.sizes.items() if other_label != label} | dict(parts)
    return Term(operands, axes, sizes, term.factor)


def _substituted(index: Index, replaced: Mapping[int, Index]) -> Index:
    """Return the index with labels replaced by where they stand for."""
    start, moves = index
    moved: list[tuple[int, int]] = []
    for label, step in moves:
        begin, inner_moves = replaced.get(label, (0, ((label, 1),)))
        start += step * begin
        moved += [(inner, step * times) for inner, times in inner_moves]
    return start, tuple(moved)


def placed(graph: Graph, term: Term, dtype: str) -> int | None:
    """Return the node that computes `term`; none where an operand would be indexed twice by one label."""
    factor, operands = term.factor, []
    absent = set(term.sizes).difference(*term.axes)
    for number, index in term.operands:
        moves = [(axis, label, step) for axis, (_, axis_moves) in enumerate(index) for label, step in axis_moves]
        moves = [move for move in moves if term.sizes[move[1]] > 1]
        labels = [label for _, label, _ in moves]
        if len(set(labels)) < len(labels):
            return None
        groups = [((axis, step, term.sizes[label]),) for axis, label, step in moves]
        seen, labels = _without_repeats(graph, view(graph, number, groups, [start for start, _ in index]), labels)
        if graph[seen].kind == "constant":
            factor *= graph[seen].options
            continue
        absent.difference_update(labels)
        operands.append((seen, tuple(labels)))
    parts = _partial_repeat(graph, operands, {label for axis in term.axes for label in axis})
    if parts is not None:
        label, extents = parts
        fresh = max(term.sizes) + 1
        return placed(graph, divided(term, label, {fresh + place: n for place, n in enumerate(extents)}), dtype)
    factor *= prod(term.sizes[label] for label in absent)
    return _outer(graph, operands, term, factor, dtype)


def _partial_repeat(
    graph: Graph, operands: Sequence[tuple[int, tuple[int, ...]]], out: set[int]
) -> tuple[int, tuple[int, ...]] | None:  # fmt: skip
    """Return a label along which an operand repeats itself in part, with the parts' extents.

    It is one along which no other operand moves, or all that do repeat alike, or over which the product sums.
    """
    users = Counter(label for _, labels in operands for label in labels)
    alike: Counter[tuple[int, tuple[tuple[bool, int], ...]]] = Counter()
    for number, labels in operands:
        options = graph[number].options
        for group, label in zip(options.groups if isinstance(options, View) else (), labels, strict=False):
            repeats = tuple((axis < 0, n) for axis, _, n in group)
            alike[label, repeats] += 1
            is_free = users[label] == alike[label, repeats] or label not in out
            if is_free and len({is_repeat for is_repeat, _ in repeats}) == 2:
                return label, tuple(n for _, n in repeats)
    return None


def _without_repeats(graph: Graph, number: int, labels: list[int]) -> tuple[int, list[int]]:
    """Return the operand without dimensions along which it only repeats itself."""
    node = graph[number]
    if node.kind == "constant":
        return number, []
    if not isinstance(node.options, View):
        return number, labels
    kept_places = [place for place, group in enumerate(node.options.groups) if any(axis >= 0 for axis, _, _ in group)]
    if len(kept_places) == len(labels):
        return number, labels
    groups = [node.options.groups[place] for place in kept_places]
    return view(graph, node.inputs[0], groups, node.options.starts), [labels[place] for place in kept_places]


def _outer(
    graph: Graph, operands: list[tuple[int, tuple[int, ...]]], term: Term, factor: float, dtype: str
) -> int:  # fmt: skip
    shape = tuple(prod(term.sizes[label] for label in axis) for axis in term.axes)
    if factor == 0 or not operands:
        return graph.constant(factor, shape, dtype)
    used = {label for _, labels in operands for label in labels}
    out = [label for axis in term.axes for label in axis if label in used]
    core = _core(graph, operands, out, term.sizes, factor, dtype)
    groups: list[list[Factor]] = [
        [(out.index(label), 1, term.sizes[label]) if label in used else (-1, 0, term.sizes[label]) for label in axis]
        for axis in term.axes
    ]
    return view(graph, core, groups, (0,) * len(out))


def _core(
    graph: Graph, operands: list[tuple[int, tuple[int, ...]]], out: list[int], sizes: Mapping[int, int],
    factor: float, dtype: str,
) -> int:  # fmt: skip
    """Return the product itself, its labels numbered in order of appearance."""
    operands = sorted(operands, key=lambda operand: operand[0])
    number, labels = operands[0]
    if len(operands) == 1 and len(out) == len(labels):
        shape, axes = graph[number].shape, tuple(range(len(labels)))
        if factor != 1:
            number = graph.add("product", (number,), shape, dtype, Product((axes,), axes, factor))
        return view(graph, number, [((labels.index(label), 1, sizes[label]),) for label in out], (0,) * len(shape))
    names: dict[int, int] = {}
    for label in (*out, *(name for _, operand_labels in operands for name in operand_labels)):
        names.setdefault(label, len(names))
    options = Product(
        tuple(tuple(names[label] for label in operand_labels) for _, operand_labels in operands),
        tuple(names[label] for label in out),
        factor,
    )
    return graph.add("product", tuple(n for n, _ in operands), tuple(sizes[label] for label in out), dtype, options)


def scaled(graph: Graph, number: int, factor: float) -> int:
    """Return the node times a number."""
    if factor == 1:
        return number
    term = _leaf(graph, number)
    result = placed(graph, term._replace(factor=term.factor * factor), graph[number].dtype)
    assert result is not None
    return result


def _leaf(graph: Graph, number: int) -> Term:
    """Return any node as a term of its own, unopened."""
    labels = [graph.label() for _ in graph[number].shape]
    operand = (number, tuple((0, ((label, 1),)) for label in labels))
    return Term((operand,), tuple((label,) for label in labels), dict(zip(labels, graph[number].shape, strict=True)))


def product(
    graph: Graph, operands: Iterable[tuple[int, Sequence[str]]], out: Sequence[str], dtype: str, factor: float = 1.0
) -> int:
    """Return factor * sum over the labels that `out` lacks of the product of the operands, labels as in einsum."""
    names: dict[str, int] = {}
    sizes: dict[int, int] = {}
    numbered = []
    for number, labels in operands:
        for label, extent in zip(labels, graph.nodes[number].shape, strict=True):
            sizes[names.setdefault(label, len(names))] = extent
        numbered.append((number, [names[label] for label in labels]))
    out_labels = [names[label] for label in out]
    if all(_is_even(graph, number, labels) for number, labels in numbered):
        return _even(graph, numbered, out_labels, sizes, factor, dtype)
    parts = tuple((number, tuple((0, ((label, 1),)) for label in labels)) for number, labels in numbered)
    result = placed(graph, _apart(graph, Term(parts, tuple((label,) for label in out_labels), sizes, factor)), dtype)
    assert result is not None
    return result


def _is_even(graph: Graph, number: int, labels: Sequence[int]) -> bool:
    """Say whether each dimension of an operand is either fully broadcast or not at all, so that none must be split."""
    node = graph.nodes[number]
    if node.kind == "view" and not _runs_of(node.options)[1]:
        return False
    return len(set(labels)) == len(labels)


@lru_cache(maxsize=4096)
def _runs_of(options: View) -> tuple[tuple[int, ...], bool]:
    """Return the dimensions of a view along which it runs through its source; whether the others only repeat it."""
    moved = tuple(place for place, group in enumerate(options.groups) if any(axis >= 0 for axis, _, _ in group))
    return moved, all(axis >= 0 for place in moved for axis, _, _ in options.groups[place])


def _even(
    graph: Graph, operands: Sequence[tuple[int, list[int]]], out: list[int], sizes: Mapping[int, int], factor: float,
    dtype: str,
) -> int:  # fmt: skip
    """Return the product of operands as `product` states it, which is what `placed` would make of it, much faster."""
    left: list[tuple[int, tuple[int, ...]]] = []
    for number, labels in operands:
        node = graph.nodes[number]
        if node.kind == "constant":
            factor *= node.options
            continue
        if node.kind == "view":
            kept_places = _runs_of(node.options)[0]
            source, groups, starts = node.inputs[0], node.options.groups, node.options.starts
        else:
            kept_places = tuple(place for place, extent in enumerate(node.shape) if extent > 1)
            source, groups, starts = number, _dense(node.shape), (0,) * len(node.shape)
        whole = len(kept_places) == len(labels)
        seen = number if whole else view(graph, source, [groups[place] for place in kept_places], starts)
        left.append((seen, tuple(labels[place] for place in kept_places)))
    used = {label for _, labels in left for label in labels}
    factor *= prod(extent for label, extent in sizes.items() if label not in used and label not in out)
    term = Term((), tuple((label,) for label in out), sizes)
    return _outer(graph, left, term, factor, dtype)


@lru_cache(maxsize=4096)
def _dense(shape: tuple[int, ...]) -> tuple[tuple[Factor, ...], ...]:
    """Return the view groups of a whole tensor."""
    return tuple(((axis, 1, extent),) for axis, extent in enumerate(shape))


def _apart(graph: Graph, term: Term) -> Term:
    """Return a term just built, with dimensions of one operand that repeat themselves in part split at the repeats."""
    operands, split = term.operands, set[int]()
    for position, (number, index) in enumerate(operands):
        node = graph[number]
        others = operands[:position] + operands[position + 1 :]
        for place, (_, ((label, _),)) in enumerate(index):
            group = node.options.groups[place] if isinstance(node.options, View) else ()
            repeats = any(axis < 0 for axis, _, _ in group) and not all(axis < 0 for axis, _, _ in group)
            if repeats and label not in split and all(_is_still(graph, *other, label) for other in others):
                split.add(label)
                fresh = max(term.sizes) + 1
                term = divided(term, label, {fresh + part: n for part, (_, _, n) in enumerate(group)})
    return term


def _is_still(graph: Graph, number: int, index: tuple[Index, ...], label: int) -> bool:
    """Say whether an operand has the same values at every position of a label."""
    node = graph[number]
    places = [place for place, (_, moves) in enumerate(index) if any(moved == label for moved, _ in moves)]
    if node.kind == "constant":
        return True
    groups = node.options.groups if isinstance(node.options, View) else ()
    return not places or (bool(groups) and all(axis < 0 for place in places for axis, _, _ in groups[place]))


def added(graph: Graph, numbers: Sequence[int], dtype: str) -> int:
    """Return the sum of nodes of one shape."""
    if len(numbers) == 1:
        return numbers[0]
    return graph.add("add", tuple(sorted(numbers)), graph[numbers[0]].shape, dtype)


def contracts(node: Node) -> bool:
    """Say whether the node is a product of several operands with a sum."""
    return isinstance(node.options, Product) and bool(summed(node.options) & _shared(node.options))


@lru_cache(maxsize=1024)
def summed(options: Product) -> frozenset[int]:
    """Return the labels over which a product sums."""
    return frozenset(label for labels in options.labels for label in labels).difference(options.out)


@lru_cache(maxsize=1024)
def _shared(options: Product) -> frozenset[int]:
    """Return the labels that several operands have."""
    counts = Counter(label for labels in options.labels for label in labels)
    return frozenset(label for label, count in counts.items() if count > 1)
