"""Products that another product of the step holds: the same sums transposed, in another shape, or a part of them."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import gcd, prod
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, composed
from nearpeak.bounds.simplify.product_sums import Product, contracts
from nearpeak.bounds.simplify.value_graph import Graph

Side = tuple[int, int, int]
"""Position of an operand, a dimension of its source, and the step along it."""
Run = tuple[int, int, int]
"""A dimension of a source, the step along it, the extent."""


class _Sums(NamedTuple):
    """A product by the elements of the sources that it multiplies, whatever the order of its dimensions."""

    starts: tuple[tuple[int, ...], ...]
    """First position along each dimension of the source of each operand."""
    summed: Mapping[frozenset[Side], int]
    """Extents of what is summed over, by how it moves through the sources."""
    out: Mapping[frozenset[Side], int]
    """Extents of the dimensions of the result, by how they move through the sources."""


class _Seen(NamedTuple):
    """What a node is a view or a part of."""

    source: int
    """Number of that."""
    options: View | None
    """How the node sees it; none where it is the node itself."""
    shape: tuple[int, ...]
    """Its extents."""


def contained(graph: Graph, live: Sequence[int]) -> set[int]:
    """Return the products of which all elements are among those of another live product."""
    alike: dict[tuple[int, ...], list[int]] = {}
    parts = _parts(graph, live)
    for number in live:
        node = graph[number]
        if contracts(node):
            alike.setdefault(tuple(sorted(_seen(graph, n, parts).source for n in node.inputs)), []).append(number)
    inner: set[int] = set()
    for numbers in alike.values():
        wholes: list[_Sums] = []
        for number in sorted(numbers, key=lambda n: -prod(graph[n].shape)) if len(numbers) > 1 else ():
            sums = _sums(graph, number, parts)
            if any(_holds(whole, sums) for whole in wholes):
                inner.add(number)
            else:
                wholes.append(sums)
    return inner


def _parts(graph: Graph, live: Sequence[int]) -> dict[int, _Seen]:
    """Return the element-wise results that are parts, as all their operands are the same part of something.

    The wholes need not be nodes: numbers below 0 stand for them.
    """
    parts: dict[int, _Seen] = {}
    wholes: dict[Hashable, int] = {}
    for number in live:
        node = graph[number]
        if node.kind not in ("pointwise", "add"):
            continue
        every = [_seen(graph, operand, parts) for operand in node.inputs]
        fixed = [graph[operand].kind == "constant" for operand in node.inputs]
        moved = [seen for seen, is_fixed in zip(every, fixed, strict=True) if not is_fixed]
        if moved and moved[0].options is not None and all(seen.options == moved[0].options for seen in moved):
            operands = [(is_fixed, graph[seen.source].options if is_fixed else seen.source)
                        for seen, is_fixed in zip(every, fixed, strict=True)]  # fmt: skip
            key = (node.kind, node.options, *(sorted(operands) if node.kind == "add" else operands))
            parts[number] = moved[0]._replace(source=wholes.setdefault(key, -1 - len(wholes)))
    return parts


def _seen(graph: Graph, number: int, parts: Mapping[int, _Seen]) -> _Seen:
    """Return what a node is a view or a part of; itself where it is neither."""
    node = graph[number]
    if number in parts or not isinstance(node.options, View):
        return parts.get(number, _Seen(number, None, node.shape))
    (source,) = node.inputs
    whole = parts.get(source)
    if whole is None or whole.options is None:
        return _Seen(source, node.options, graph[source].shape)
    options = composed(node.options, whole.options, whole.shape)
    return _Seen(number, None, node.shape) if options is None else whole._replace(options=options)


def _sums(graph: Graph, number: int, parts: Mapping[int, _Seen]) -> _Sums:
    node = graph[number]
    assert isinstance(node.options, Product)
    operands = []
    for operand, labels in zip(node.inputs, node.options.labels, strict=True):
        source, options, _ = _seen(graph, operand, parts)
        starts: tuple[int, ...] = (0,) * len(graph[operand].shape)
        groups: Sequence[tuple[Run, ...]] = [((axis, 1, n),) for axis, n in enumerate(graph[operand].shape)]
        if options is not None:
            groups, starts = options.groups, tuple(options.starts)
        operands.append((source, starts, dict(zip(labels, groups, strict=True))))
    operands.sort(key=lambda operand: operand[:2])
    summed: dict[frozenset[Side], int] = {}
    out: dict[frozenset[Side], int] = {}
    for label in {label for _, _, groups in operands for label in groups}:
        runs = {place: groups[label] for place, (_, _, groups) in enumerate(operands) if label in groups}
        target = out if label in node.options.out else summed
        for sides, extent in _digits(runs):
            overlap = out.get(sides, 1) - 1 if target is out else 0  # windows that move alike reach further together
            target[sides] = extent + overlap
    return _Sums(tuple(starts for _, starts, _ in operands), summed, _merged(out))


def _merged(out: Mapping[frozenset[Side], int]) -> Mapping[frozenset[Side], int]:
    """Return dimensions with those joined that run on from one another along one operand and meet no other."""
    joined: dict[frozenset[Side], int] = {}
    for sides, extent in sorted(out.items(), key=lambda item: min(step for _, _, step in item[0]) if item[0] else 0):
        before = None
        if len(sides) == 1:
            ((place, axis, step),) = sides
            before = next((other for other, n in joined.items() if len(other) == 1 for at, on, s in other
                           if (at, on) == (place, axis) and s * n == step), None)  # fmt: skip
        if before is None:
            joined[sides] = extent
        else:
            joined[before] *= extent
    return joined


def _digits(runs: Mapping[int, Sequence[Run]]) -> Iterator[tuple[frozenset[Side], int]]:
    """Yield a label as digits along each of which all operands that it moves have one step.

    Dimensions that one operand joins of several are taken apart in all; where extents do not divide, the label stays
    whole and equals only its like.
    """
    left = {place: [run for run in group if run[2] > 1] for place, group in runs.items()}
    while any(left.values()):
        extent = gcd(*(group[-1][2] if group else 1 for group in left.values()))
        if extent == 1:
            rest = frozenset((place, axis, step * n) for place, group in left.items() for axis, step, n in group)
            yield rest, prod(n for _, _, n in next(iter(left.values())))
            return
        yield frozenset((place, group[-1][0], group[-1][1]) for place, group in left.items()), extent
        for group in left.values():
            axis, step, n = group.pop()
            if n > extent:
                group.append((axis, step * extent, n // extent))


def _holds(whole: _Sums, part: _Sums) -> bool:
    """Say whether every sum of `part` is one of `whole`."""
    extents = _extents(whole, part)
    if whole.summed != part.summed or any(extent > whole.out.get(sides, 0) for sides, extent in extents.items()):
        return False
    moved: dict[tuple[int, int], list[tuple[frozenset[Side], int]]] = {}
    for sides in whole.out:
        for place, axis, step in sides:
            moved.setdefault((place, axis), []).append((sides, step))
    begins: dict[frozenset[Side], int] = {}
    for place, (first, begins_of_part) in enumerate(zip(whole.starts, part.starts, strict=True)):
        for axis, (outer, inner) in enumerate(zip(first, begins_of_part, strict=True)):
            steps = moved.get((place, axis), [])
            if len(steps) != 1:
                if outer != inner:
                    return False
                continue
            ((sides, step),) = steps
            begin, rest = divmod(inner - outer, step) if step else (0, inner - outer)
            if rest or begins.setdefault(sides, begin) != begin:
                return False
    return all(0 <= begin <= whole.out[sides] - extents.get(sides, 1) for sides, begin in begins.items())


def _extents(whole: _Sums, part: _Sums) -> Mapping[frozenset[Side], int]:
    """Return how far a part reaches along the dimensions of the whole; along others, its own extents.

    Several dimensions of the part may run along one of the whole, as batches and tokens do along rows.
    """
    extents: dict[frozenset[Side], int] = {}
    for sides, extent in part.out.items():
        along, times = sides, 1
        if sides not in whole.out and len(sides) == 1:
            ((place, axis, step),) = sides
            finer = [other for other in whole.out if len(other) == 1 for at, on, s in other
                     if (at, on) == (place, axis) and s and step % s == 0]  # fmt: skip
            along, times = (finer[0], step // next(iter(finer[0]))[2]) if len(finer) == 1 else (sides, 1)
        extents[along] = extents.get(along, 1) + (extent - 1) * times
    return extents
