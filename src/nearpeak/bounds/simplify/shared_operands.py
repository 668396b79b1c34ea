"""Sums of products that share an operand, formed as one product: x W + (x A) B is x (W + A B)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, is_part, view
from nearpeak.bounds.simplify.product_orders import cost
from nearpeak.bounds.simplify.product_sums import (
    Index,
    Product,
    Term,
    added,
    contracts,
    merged,
    opened,
    placed,
    view_term,
)
from nearpeak.bounds.simplify.value_graph import Graph

_MOST_OPERANDS = 4
_MOST_PARTS = 64

Key = tuple[int, tuple[tuple[int, tuple[tuple[object, int, int], ...]], ...]]
"""An operand and how it lies in its term, without the numbers of labels."""


class _Part(NamedTuple):
    """A summand that is a product."""

    node: int
    """Its node."""
    term: Term
    """The product, with those opened that nothing else uses."""
    products: frozenset[int]
    """Products that are gone where the term is formed otherwise."""


class Joined(NamedTuple):
    """Products that are formed as one."""

    number: int
    """Sum that they were part of."""
    instead: int
    """What stands for it."""
    call: int
    """Call that formed the first of them; -1 when unknown."""
    products: tuple[int, int]
    """Multiply-adds before and after."""


def joined_products(graph: Graph, live: Sequence[int]) -> Iterator[Joined]:
    """Yield sums of which products that share an operand take less as one."""
    users: dict[int, list[int]] = {}
    for number in live:
        for source in set(graph[number].inputs):
            users.setdefault(source, []).append(number)
    inner: set[int] = set()
    for number in reversed(live):
        if graph[number].kind != "add" or number in inner:
            continue
        summands = list(_summands(graph, number, users, inner))
        parts = [part for node in summands if (part := _product(graph, node, users)) is not None]
        best = _best(graph, parts, users) if len(parts) > 1 and len(summands) <= _MOST_PARTS else None
        if best is not None:
            node, group, products = best
            rest = [summand for summand in summands if summand not in {part.node for part in group}]
            total = added(graph, [node, *rest], graph[number].dtype)
            yield Joined(number, total, graph.owner.get(min(group[0].products), -1), products)


def distributed_products(graph: Graph, live: Sequence[int]) -> Iterator[Joined]:
    """Yield products of a sum of broadcast summands that take less one by one: (a + b) W is a W + b W."""
    formed = set(live)
    for number in live:
        node = graph[number]
        if not contracts(node):
            continue
        term = _flattened(graph, opened(graph, node))
        for place, (operand, index) in enumerate(term.operands):
            options = graph[operand].options if graph[operand].kind == "view" else None
            total = operand if options is None else graph[operand].inputs[0]
            if graph[total].kind != "add" or (options is not None and is_part(graph[operand], graph[total].shape)):
                continue
            parts = []
            for summand in graph[total].inputs:
                seen = summand if options is None else view(graph, summand, options.groups, options.starts)
                operands = (*term.operands[:place], (seen, index), *term.operands[place + 1 :])
                parts.append(placed(graph, term._replace(operands=operands), node.dtype))
            whole = [part for part in parts if part is not None]
            cores = _cores(graph, whole) - formed
            before, after = cost(graph, node)[0], sum(cost(graph, graph[core])[0] for core in cores)
            if len(whole) == len(parts) and after < before:
                total = added(graph, whole, node.dtype)
                yield Joined(number, total, graph.owner.get(number, -1), (before, after))
                break


def parts_of_sums(graph: Graph, live: Sequence[int]) -> Iterator[Joined]:
    """Yield parts of sums as sums of parts, where nothing formed the products of the whole sum as one."""
    for number in live:
        node = graph[number]
        if not isinstance(node.options, View) or graph[node.inputs[0]].kind != "add":
            continue
        total = graph[node.inputs[0]]
        if is_part(node, total.shape):
            parts = [view(graph, summand, node.options.groups, node.options.starts) for summand in total.inputs]
            yield Joined(number, added(graph, parts, node.dtype), -1, (0, 0))


def _flattened(graph: Graph, term: Term) -> Term:
    """Return a term with element-wise products among its operands opened, as masks of sums are."""
    for place, (operand, _) in enumerate(term.operands):
        node = graph[operand]
        inner = opened(graph, node) if isinstance(node.options, Product) and not contracts(node) else None
        flat = merged(graph, term, place, inner) if inner and len(inner.operands) > 1 else None
        if flat is not None and len(flat.operands) <= _MOST_OPERANDS:
            return _flattened(graph, flat)
    return term


def _cores(graph: Graph, numbers: Sequence[int]) -> set[int]:
    """Return the products with a sum among nodes and what they are views of."""
    cores = {graph[number].inputs[0] if graph[number].kind == "view" else number for number in numbers}
    return {core for core in cores if contracts(graph[core])}


def _summands(graph: Graph, number: int, users: Mapping[int, Sequence[int]], inner: set[int]) -> Iterator[int]:
    """Yield what a sum adds up, sums within it that nothing else uses opened."""
    waiting: list[tuple[int, tuple[View, ...]]] = [(source, ()) for source in graph[number].inputs]
    while waiting:
        source, views = waiting.pop()
        node = graph[source]
        alone = len(users.get(source, ())) == 1
        if alone and node.kind == "add":
            inner.add(source)
            waiting += [(operand, views) for operand in node.inputs]
        elif alone and isinstance(node.options, View) and graph[node.inputs[0]].kind == "add" and not is_part(
            node, graph[node.inputs[0]].shape
        ):  # fmt: skip
            waiting.append((node.inputs[0], (*views, node.options)))
        else:
            for options in reversed(views):
                source = view(graph, source, options.groups, options.starts)
            yield source


def _product(graph: Graph, number: int, users: Mapping[int, Sequence[int]]) -> _Part | None:
    """Return a summand as one product; none where it is none."""
    gone: set[int] = set()
    term = opened_alone(graph, number, users, gone, is_summand=True)
    place = 0
    while term is not None and place < len(term.operands) < _MOST_OPERANDS:
        more: set[int] = set()
        inner = opened_alone(graph, term.operands[place][0], users, more)
        longer = None if inner is None else merged(graph, term, place, inner)
        if longer is None or len(longer.operands) > _MOST_OPERANDS:
            place += 1
        else:
            term, place = longer, 0
            gone |= more
    return None if term is None or len(term.operands) < 2 else _Part(number, term, frozenset(gone))


def opened_alone(
    graph: Graph, number: int, users: Mapping[int, Sequence[int]], gone: set[int], *, is_summand: bool = False
) -> Term | None:  # fmt: skip
    """Return the term of a product, or of a view of one, that nothing else uses, and add the product to `gone`."""
    node, core = graph[number], number
    if isinstance(node.options, View):
        core = node.inputs[0]
        if len(users.get(number, ())) > 1:
            return None
    is_product = isinstance(graph[core].options, Product) if is_summand else contracts(graph[core])
    if not is_product or len(users.get(core, ())) > 1:
        return None
    term = opened(graph, graph[core])
    if core != number:
        assert isinstance(node.options, View)
        whole = merged(graph, view_term(graph, core, node.options), 0, term)
        if whole is None:
            return None
        term = whole
    if contracts(graph[core]):
        gone.add(core)
    return term


def _best(
    graph: Graph, parts: Sequence[_Part], users: Mapping[int, Sequence[int]]
) -> tuple[int, list[_Part], tuple[int, int]] | None:  # fmt: skip
    """Return the product that spares most, the summands that it stands for, and the multiply-adds."""
    dtype = graph[parts[0].node].dtype
    groups: dict[Key, list[tuple[_Part, int]]] = {}
    for part in parts:
        for place in range(len(part.term.operands)):
            if all(part is not other for other, _ in groups.get(_key(part.term, place), ())):
                groups.setdefault(_key(part.term, place), []).append((part, place))
    best = None
    for group in groups.values():
        made = _formed(graph, [(part.term, place) for part, place in group], dtype) if len(group) > 1 else None
        if made is None:
            continue
        number, products = made
        gone = {node for part, _ in group for node in part.products}
        before = sum(cost(graph, graph[node])[0] for node in gone)
        after = sum(cost(graph, graph[node])[0] for node in products if node in gone or node not in users)
        if after < before and (best is None or before - after > best[2][0] - best[2][1]):
            best = (number, [part for part, _ in group], (before, after))
    return best


def _key(term: Term, place: int) -> Key:
    """Return an operand and how its dimensions follow those of the result, alike for all terms."""
    roles: dict[int, object] = {
        label: (axis, position) for axis, labels in enumerate(term.axes) for position, label in enumerate(labels)
    }
    number, index = term.operands[place]
    indices = []
    for start, moves in index:
        steps = []
        for label, step in moves:
            steps.append((roles.setdefault(label, f"s{len(roles)}"), step, term.sizes[label]))
        indices.append((start, tuple(steps)))
    return number, tuple(indices)


def _formed(graph: Graph, group: Sequence[tuple[Term, int]], dtype: str) -> tuple[int, set[int]] | None:
    """Return the shared operand times the sum of what it was multiplied by, and all products in it."""
    rests, outs = [], set()
    axes: list[int] = []
    for term, place in reversed(group):
        out = [label for axis in term.axes for label in axis]
        operand_labels = _labels(term.operands[place][1])
        rest = (*term.operands[:place], *term.operands[place + 1 :])
        others = {label for _, index in rest for label in _labels(index)}
        axes = [*(label for label in operand_labels if label not in out), *(label for label in out if label in others)]
        outs.add(tuple(out.index(label) for label in axes if label in out))
        sizes = {label: term.sizes[label] for label in {*axes, *others}}
        rests.append(Term(rest, tuple((label,) for label in axes), sizes, term.factor))
    summed = _sum(graph, rests, dtype) if len(outs) == 1 else None
    if summed is None:
        return None
    total, products = summed
    term, place = group[0]
    index: tuple[Index, ...] = tuple((0, ((label, 1),)) for label in axes)
    used = {*_labels(term.operands[place][1]), *axes, *(label for axis in term.axes for label in axis)}
    sizes = {label: term.sizes[label] for label in used}
    made = placed(graph, Term((term.operands[place], (total, index)), term.axes, sizes), dtype)
    return None if made is None else (made, products | _cores(graph, [made]))


def _sum(graph: Graph, terms: Sequence[Term], dtype: str) -> tuple[int, set[int]] | None:
    """Return the sum of terms, what all of them share taken out, and all products in it."""
    for place in range(len(terms[0].operands)) if min(len(term.operands) for term in terms) > 1 else ():
        key = _key(terms[0], place)
        places = [next((at for at in range(len(term.operands)) if _key(term, at) == key), -1) for term in terms]
        if -1 not in places and (made := _formed(graph, list(zip(terms, places, strict=True)), dtype)) is not None:
            return made
    nodes = [placed(graph, term, dtype) for term in terms]
    whole = [node for node in nodes if node is not None]
    return (added(graph, whole, dtype), _cores(graph, whole)) if len(whole) == len(nodes) else None


def _labels(index: Sequence[Index]) -> list[int]:
    return [label for _, moves in index for label, _ in moves]
