"""Search for linear maps whose result need not be formed, because every consumer can use the map's operands."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, is_part, view
from nearpeak.bounds.simplify.operand_facts import picked_dimensions
from nearpeak.bounds.simplify.product_orders import MOST_OPERANDS, cost
from nearpeak.bounds.simplify.product_sums import (
    Product,
    Term,
    added,
    merged,
    opened,
    placed,
    summed,
    term_of,
)
from nearpeak.bounds.simplify.shared_operands import distributed_products, joined_products, parts_of_sums
from nearpeak.bounds.simplify.value_graph import Graph
from nearpeak.core.work.dtype import dtype_of

_MOST_TERMS = 8
_MOST_USERS = 16
_MOST_SWEEPS = 8
_JOINS = (
    ("shared_operand", joined_products),
    ("repeated_operand", distributed_products),
    ("slice_of_pointwise", parts_of_sums),
)
"""Rewrites of several products at once, each tried where those before it find nothing."""


class Saving(NamedTuple):
    """One linear map that need not be formed."""

    name: str
    """File of the rewrite that applies."""
    call: int
    """Call that formed the map; -1 when unknown."""
    products: tuple[int, int]
    """Multiply-adds before and after, sums included."""


def search(graph: Graph, roots: Sequence[int]) -> tuple[list[int], list[int], list[Saving]]:
    """Return the roots after every improvement that was found, the nodes they depend on, and the improvements.

    Improvements of one sweep may stand in each other's way; those that leave more to form than was found before do not
    count.
    """
    savings: list[Saving] = []
    numbers = list(roots)
    live = graph.live(numbers)
    best = (numbers, live, 0)
    least = _total(graph, set(live))
    for _ in range(_MOST_SWEEPS):
        instead, more = _sweep(graph, numbers, live)
        if not more:
            for name, matches in _JOINS:
                for joined in () if more else matches(graph, live):
                    instead[joined.number] = joined.instead
                    more.append(Saving(name, joined.call, joined.products))
        if not more:
            break
        savings += more
        numbers = _rebuilt(graph, numbers, instead)
        live = graph.live(numbers)
        total = _total(graph, set(live))
        if total <= least:
            best, least = (numbers, live, len(savings)), total
    return best[0], best[1], savings[: best[2]]


def _sweep(graph: Graph, roots: Sequence[int], live: Sequence[int]) -> tuple[dict[int, int], list[Saving]]:
    """Return replacements for users of linear maps, those nearest to the results first."""
    users: dict[int, list[int]] = {}
    for number in live:
        for source in set(graph.nodes[number].inputs):
            users.setdefault(source, []).append(number)
    closed = _closed(graph, live, users, set(roots))
    picks = {number for number in users if number not in closed and _picks(graph, number)} if graph.picked else set()
    instead: dict[int, int] = {}
    touched: set[int] = set()
    savings = []
    for number in reversed(live):
        if number in closed or number in touched or graph[number].kind != "product" or len(graph[number].inputs) < 2:
            continue
        better = _without(graph, number, users) or (_without(graph, number, users, picks) if picks else None)
        if better is not None and not touched.intersection(better[0]):
            instead |= better[0]
            touched.update(better[0], (number,))
            savings.append(better[1])
    return instead, savings


def _closed(graph: Graph, live: Sequence[int], users: Mapping[int, Sequence[int]], roots: set[int]) -> set[int]:
    """Return the nodes that something needs as they are."""
    closed: set[int] = set()
    for number in reversed(live):
        if number in roots or any(_ends(graph, user, closed) for user in users.get(number, ())):
            closed.add(number)
    return closed


def _ends(graph: Graph, user: int, closed: set[int]) -> bool:
    """Say whether `user` needs its operand unchanged."""
    kind = graph.nodes[user].kind
    if kind not in ("view", "add", "product"):
        return True
    return user in closed and not _is_terminal(graph, user)


def _is_terminal(graph: Graph, number: int) -> bool:
    """Say whether the node reduces or slices its operand: a sum, a product with a sum, a part."""
    node = graph[number]
    if isinstance(node.options, Product):
        return bool(summed(node.options))
    return node.kind == "view" and is_part(node, graph[node.inputs[0]].shape)


def _without(
    graph: Graph, number: int, users: Mapping[int, Sequence[int]], picks: Collection[int] = ()
) -> tuple[dict[int, int], Saving] | None:  # fmt: skip
    """Return what replaces the users of a linear map, and the gain; none where nothing is gained.

    Args:
        picks: rows by position, which take no products, behind which users are looked for.
    """
    paths, terminals = _paths(graph, number, users, picks)
    if len(terminals) > _MOST_USERS:
        return None
    before = _total(graph, {number, *terminals})
    instead: dict[int, int] = {}
    made: set[int] = set()
    for terminal in sorted(terminals, key=lambda user: -prod(graph[user].shape)):  # parts of one another come later
        node = graph[terminal]
        parts_of = (_part(graph, terminal, whole, new) for whole, new in instead.items())
        part = next((number for number in parts_of if number is not None), None)
        if part is not None:
            instead[terminal] = part
            continue
        term = opened(graph, node) if node.kind == "product" else term_of(graph, terminal)
        terms = _eliminated(graph, term, paths, number)
        if terms is None:
            return None
        dtype = min((node.dtype, graph[number].dtype), key=_bits)
        parts = [placed(graph, part_term, dtype) for part_term in terms]
        if any(part is None for part in parts):
            return None
        sound = [part for part in parts if part is not None]
        made.update(_products_in(graph, sound))
        instead[terminal] = added(graph, sound, node.dtype)
    after = _total(graph, {product for product in made if product in (number, *terminals) or product not in users})
    if after[0] >= before[0]:
        return None
    kinds = {graph[terminal].kind if len(graph[terminal].inputs) < 2 else "chain" for terminal in terminals}
    name = {"view": "slice_through_product", "product": "sum_through_product"}.get(kinds.pop(), "product_order")
    return instead, Saving("product_order" if kinds else name, graph.owner.get(number, -1), (sum(before), sum(after)))


def _part(graph: Graph, number: int, whole: int, new: int) -> int | None:
    """Return a part of a node as that part of another part of it, of which `new` holds the values; none elsewhere."""
    inner, outer = graph[number], graph[whole]
    if not isinstance(inner.options, View) or not isinstance(outer.options, View) or inner.inputs != outer.inputs:
        return None
    places = {group[0][0]: place for place, group in enumerate(outer.options.groups) if len(group) == 1}
    is_plain = all(len(group) < 2 and all(axis >= 0 and step == 1 for axis, step, _ in group)
                   for group in outer.options.groups)  # fmt: skip
    if not is_plain or len(places) < sum(map(bool, outer.options.groups)):
        return None
    starts = [0] * len(outer.shape)
    for axis, (begin, first) in enumerate(zip(inner.options.starts, outer.options.starts, strict=True)):
        place = places.get(axis, -1)
        last = begin + sum(
            step * (n - 1) for group in inner.options.groups for group_axis, step, n in group if group_axis == axis
        )
        if not first <= begin <= last < first + (outer.shape[place] if place >= 0 else 1):
            return None
        if place >= 0:
            starts[place] = begin - first
    groups = [[(places.get(axis, -1), step, n) for axis, step, n in group] for group in inner.options.groups]
    return view(graph, new, groups, starts)


def _bits(name: str) -> int:
    return dtype_of(name).bits_count


def _picks(graph: Graph, number: int) -> bool:
    """Say whether a node is the product of two factors of which one picks."""
    node = graph[number]
    is_pair = isinstance(node.options, Product) and len(node.inputs) == 2
    return is_pair and any(picked_dimensions(graph, source) for source in node.inputs)


def _paths(
    graph: Graph, number: int, users: Mapping[int, Sequence[int]], picks: Collection[int]
) -> tuple[set[int], list[int]]:  # fmt: skip
    """Return the nodes through which the map's result passes unchanged in kind, and those that take less of it."""
    paths, terminals, waiting = {number}, set(), [number]
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if _is_terminal(graph, user) and user not in picks:
                terminals.add(user)
            elif user not in paths:
                paths.add(user)
                waiting.append(user)
    return paths, sorted(terminals)


def _products_in(graph: Graph, numbers: Sequence[int]) -> set[int]:
    """Return the products among nodes and what they are views of."""
    products = set()
    for number in numbers:
        core = graph[number].inputs[0] if graph[number].kind == "view" else number
        if graph[core].kind == "product":
            products.add(core)
    return products


def _total(graph: Graph, numbers: set[int]) -> tuple[int, int]:
    """Return multiply-adds and other arithmetic of the products among the nodes."""
    costs = [cost(graph, graph[number]) for number in numbers if graph[number].kind == "product"]
    return sum(products for products, _ in costs), sum(rest for _, rest in costs)


def _eliminated(graph: Graph, term: Term, paths: set[int], number: int) -> list[Term] | None:
    """Return terms that add up to `term` and have no operand on a path from the map; none where that fails."""
    if len(term.operands) > MOST_OPERANDS:
        return None
    place = next((i for i, (node, _) in enumerate(term.operands) if node in paths), None)
    if place is None:
        return [term]
    inner = _parts(graph, term.operands[place][0], paths, number)
    if inner is None:
        return None
    terms: list[Term] = []
    for inner_term in inner:
        both = merged(graph, term, place, inner_term)
        more = None if both is None else _eliminated(graph, both, paths, number)
        if more is None or len(terms) + len(more) > _MOST_TERMS:
            return None
        terms += more
    return terms


def _parts(graph: Graph, operand: int, paths: set[int], number: int) -> list[Term] | None:
    """Return a node on a path as terms."""
    node = graph[operand]
    if operand == number:
        return [opened(graph, node)]
    if node.kind == "add":
        parts: list[Term] = []
        for source in node.inputs:
            more = (
                _eliminated(graph, term_of(graph, source), paths, number)
                if source in paths
                else [term_of(graph, source)]
            )
            if more is None:
                return None
            parts += more
        return parts
    return _eliminated(graph, term_of(graph, operand), paths, number)


def _rebuilt(graph: Graph, roots: Sequence[int], instead: Mapping[int, int]) -> list[int]:
    """Return the roots on top of the replacements; what stays as it was keeps its owner."""
    done: dict[int, int] = {}
    waiting = list(roots)
    while waiting:
        number = waiting[-1]
        if number in done:
            waiting.pop()
            continue
        if number in instead:
            needed: Sequence[int] = (instead[number],)
        else:
            needed = graph[number].inputs
        missing = [source for source in needed if source not in done]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        done[number] = done[instead[number]] if number in instead else _again(graph, number, done)
    for (number, says), fact in list(graph.facts.items()):  # the same values under another number
        if number in done:
            graph.facts.setdefault((done[number], says), fact)
    for number, axes in list(graph.picked.items()):
        if number in done and graph[done[number]].shape == graph[number].shape:
            graph.picked.setdefault(done[number], axes)
    for number, carrier in list(graph.carriers.items()):
        if number in done:
            graph.carriers.setdefault(done[number], carrier)
    return [done[number] for number in roots]


def _again(graph: Graph, number: int, done: Mapping[int, int]) -> int:
    node = graph[number]
    inputs = tuple(done[source] for source in node.inputs)
    inputs = tuple(sorted(inputs)) if node.kind == "add" else inputs
    if inputs == node.inputs:
        return number
    copy = graph.add(node.kind, inputs, node.shape, node.dtype, node.options)
    if graph[copy].kind == node.kind and graph[copy].options == node.options:
        if number in graph.owner:
            graph.owner.setdefault(copy, graph.owner[number])
        elif number in graph.parts:
            graph.parts.setdefault(copy, graph.parts[number])
    return copy
