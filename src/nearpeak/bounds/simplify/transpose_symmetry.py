"""Detection of products with symmetric results, such as X X^T, of which one half need not be computed."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.product_sums import Product, contracts
from nearpeak.bounds.simplify.value_graph import Graph, Node

Pair = tuple[int, int]
"""Two dimensions of a node that may be exchanged."""
_MOST_DIMENSIONS = 6


def symmetric(graph: Graph, live: Sequence[int]) -> dict[int, Pair]:
    """Return by product of two operands which of its dimensions may be exchanged, where some may.

    Args:
        live: nodes in rising order, inputs before what uses them.
    """
    relevant = _asked(graph, live)
    alike: dict[int, frozenset[Pair]] = {}
    symmetric_pairs = {}
    for number in (number for number in live if number in relevant):
        node = graph[number]
        alike[number] = pairs = _pairs(graph, node, alike)
        extent, pair = max(((node.shape[candidate[0]], candidate) for candidate in pairs), default=(1, (0, 0)))
        if extent > 1 and _may_be_halved(node):
            symmetric_pairs[number] = pair
    return symmetric_pairs


def _may_be_halved(node: Node) -> bool:
    return len(node.inputs) == 2 and contracts(node) and any(node.shape[first] > 1 for first, _ in _equal(node.shape))


def _asked(graph: Graph, live: Sequence[int]) -> set[int]:
    """Return the nodes on whose own symmetry that of a product rests: a node without equal dimensions has none."""
    relevant: set[int] = set()
    for number in reversed(live):
        node = graph[number]
        if _equal(node.shape) and (number in relevant or _may_be_halved(node)):
            relevant.add(number)
            relevant.update(node.inputs)
            relevant.update(graph[source].inputs[0] for source in node.inputs if graph[source].kind == "view")
    return relevant


@lru_cache(maxsize=1024)
def _equal(shape: tuple[int, ...]) -> tuple[Pair, ...]:
    """Return the pairs of dimensions of one extent; none for a shape of many dimensions."""
    if len(shape) > _MOST_DIMENSIONS:
        return ()
    return tuple(pair for pair in combinations(range(len(shape)), 2) if shape[pair[0]] == shape[pair[1]])


def _pairs(graph: Graph, node: Node, alike: Mapping[int, frozenset[Pair]]) -> frozenset[Pair]:
    """Return the pairs of dimensions that may be exchanged without changing the node."""
    every = _equal(node.shape)
    if not every:
        return frozenset()
    if node.kind == "constant":
        return frozenset(every)
    if node.kind in ("add", "pointwise") and node.inputs:
        return frozenset.intersection(*(alike[operand] for operand in node.inputs)).intersection(every)
    if isinstance(node.options, Product):
        options = node.options
        operands = [_operand(graph, *operand, alike) for operand in zip(node.inputs, options.labels, strict=True)]
        return frozenset(pair for pair in every if _exchanged(operands, *(options.out[place] for place in pair)))
    if isinstance(node.options, View):
        groups = node.options.groups
        # Dimensions that only repeat the node may be exchanged.
        exchanged = {pair: all(axis < 0 for place in pair for axis, _, _ in groups[place]) for pair in every}
        dims = {group[0][0] if len(group) == 1 else -3: place for place, group in enumerate(groups)}
        source = {tuple(sorted((dims.get(a, -1), dims.get(b, -2)))) for a, b in alike[node.inputs[0]]}
        whole = _whole(graph, node)
        return frozenset(pair for pair in every if exchanged[pair] or (whole and pair in source))
    return frozenset()


def _whole(graph: Graph, node: Node) -> bool:
    """Say whether a view only changes the order of whole dimensions, or picks the same part of those exchanged."""
    source_shape = graph[node.inputs[0]].shape
    used = [group[0] for group in node.options.groups if len(group) == 1]
    plain = all(start == 0 for start in node.options.starts) and len(used) == len(node.options.groups)
    return plain and all(axis < 0 or (step == 1 and extent == source_shape[axis]) for axis, step, extent in used)


Operand = tuple[int, tuple[int, ...], frozenset[tuple[object, object]]]
"""A node, where it is begun, and which label runs through what of it."""


def _operand(graph: Graph, number: int, labels: Sequence[int], alike: Mapping[int, frozenset[Pair]]) -> Operand:
    """Return an operand as its source with a view; exchangeable dimensions get one name."""
    node = graph[number]
    groups: Sequence[tuple[tuple[int, int, int], ...]] = [((d, 1, n),) for d, n in enumerate(node.shape)]
    starts = (0,) * len(groups)
    if isinstance(node.options, View):
        number, groups, starts = node.inputs[0], node.options.groups, tuple(node.options.starts)
    pair = min(alike[number], default=None)
    names = dict.fromkeys(pair, min(pair)) if pair and starts[pair[0]] == starts[pair[1]] else {}
    runs = [tuple((names.get(a, a), step, n) for a, step, n in group) for group in groups]
    return number, starts, frozenset(zip(labels, runs, strict=True))


def _exchanged(operands: Sequence[Operand], first: int, second: int) -> bool:
    """Say whether exchanging two labels leaves the same operands."""
    names = {first: second, second: first}

    def turned(operand: Operand) -> Operand:
        number, starts, runs = operand
        # A label is a name or a number; only names are exchanged.
        return number, starts, frozenset((names.get(label, label), run) for label, run in runs)  # type: ignore[call-overload]

    return sorted(map(_key, operands)) == sorted(_key(turned(operand)) for operand in operands)


def _key(operand: Operand) -> str:
    number, starts, runs = operand
    return repr((number, starts, sorted(map(repr, runs))))
