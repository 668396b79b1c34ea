"""Multiply-adds of each product after repeats, symmetry and known zeros are removed."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.simplify.contained_products import contained
from nearpeak.bounds.simplify.distinct_rows import distinct_share
from nearpeak.bounds.simplify.element_patterns import ElementSet, Patterns
from nearpeak.bounds.simplify.live_elements import ElementKnowledge, is_attention, is_causal
from nearpeak.bounds.simplify.live_products import chains_of_needed, live_products, resampled_products
from nearpeak.bounds.simplify.operand_facts import is_weights
from nearpeak.bounds.simplify.product_orders import cost, overlapping_windows
from nearpeak.bounds.simplify.product_sums import contracts
from nearpeak.bounds.simplify.recurrent_parts import is_steps, used_share
from nearpeak.bounds.simplify.repeated_chains import chains
from nearpeak.bounds.simplify.rewrite_search import Saving
from nearpeak.bounds.simplify.transpose_symmetry import symmetric
from nearpeak.bounds.simplify.triangular_zeros import product_triangle_shares
from nearpeak.bounds.simplify.used_gradients import UsedPart, used_parts
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet
from nearpeak.core.work.work import Work


class ProductCost(NamedTuple):
    """Cost of one product."""

    products: int
    """Multiply-adds."""
    sums: int
    """Other additions."""
    name: str
    """Rewrite that spares the rest, where that is less than the call does."""


NOTHING = ProductCost(0, 0, "")
"""A call of which no product is left."""


def product_costs(
    graph: Graph, live: Sequence[int], roots: Sequence[int], patterns: Patterns, known: ElementKnowledge | None
) -> dict[int, ProductCost]:
    """Return what each live product of several operands takes.

    Args:
        patterns: works out sets of elements.
        known: which elements matter; none where nothing is known of any.
    """
    pairs, triangle_shares = symmetric(graph, live), product_triangle_shares(graph, live, roots)
    inner, shares = contained(graph, live), distinct_share(graph, live, known.filled if known else {})
    costs = {}
    for number in live:
        node = graph[number]
        if not contracts(node):
            continue
        if number in inner:
            costs[number] = ProductCost(0, 0, "computed_once")
            continue
        products, sums = cost(graph, node, triangle_shares.get(number))
        name = "known_zeros" if products < cost(graph, node, zeros=False)[0] else "repeated_operand"
        pair = pairs.get(number)
        if pair is not None and name != "known_zeros":
            extent = node.shape[pair[0]]
            products, sums = (amount * (extent + 1) // (2 * extent) for amount in (products, sums))
            name = "symmetric_product"
        if any(is_weights(graph, operand) for operand in node.inputs):
            products = resampled_products(graph, node, cost(graph, node, zeros=False)[0])
        elif known is not None:
            least = live_products(graph, number, known, patterns, pair)
            sources = (graph[graph[operand].inputs[0]] for operand in node.inputs if graph[operand].kind == "view")
            spread = any(source.kind == "spread" for source in sources)  # zeros that element sets do not tell
            if least is not None and (least < products or not (spread or overlapping_windows(graph, node))):
                products, name = least, name if name == "known_zeros" else "masked_product"
        if number in shares:
            products, name = products * shares[number][0] // shares[number][1], "repeated_operand"
        costs[number] = ProductCost(products, sums, name)
    _lower(graph, (live, roots), costs, (pairs, inner), known, patterns)
    return costs


def _lower(
    graph: Graph, step: tuple[Sequence[int], Sequence[int]], costs: dict[int, ProductCost],
    special: tuple[Collection[int], Collection[int]], known: ElementKnowledge | None, patterns: Patterns,
) -> None:  # fmt: skip
    """Lower what products take together: chains in which factors recur or few elements are needed, solved equations.

    Args:
        step: live nodes, and the results.
        special: products with a symmetric result, and those that others hold.
    """
    (live, roots), (pairs, inner) = step, special
    for members, dense in chains(graph, live, roots, inner):
        few = [number for number in members if number not in pairs and number not in inner]
        _limit(costs, members, min((_of_rows(graph, number, dense, costs) for number in few), default=dense))
    for chain, least in chains_of_needed(graph, live, roots, known, patterns) if known else ():
        _limit(costs, sorted(chain), least, "product_order")
    for solved in _solved(graph, live, costs).values():
        for number in solved.users:
            products = costs[number].products
            costs[number] = costs[number]._replace(products=products - products // max(1, solved.equations))


def _limit(costs: dict[int, ProductCost], members: Sequence[int], least: int, name: str = "computed_once") -> None:
    """Let products together take so many multiply-adds at most, each in proportion to its own."""
    total = sum(costs[number].products for number in members)
    done = rest = 0
    for number in members if least < total else ():
        done += costs[number].products
        share = done * least // total - rest
        costs[number], rest = ProductCost(share, 0, name), rest + share


def by_call(
    graph: Graph, live: Sequence[int], formed: Mapping[int, ProductCost], works: Mapping[int, Work],
    known: ElementKnowledge | None,
) -> dict[int, ProductCost | None]:  # fmt: skip
    """Return what the products take of each call that still does some; none for one that does more than products.

    A call of which some products are nodes of their own forms the others as it is written.
    """
    costs: dict[int, ProductCost | None] = {}
    whole: set[int] = set()
    for number in live:
        call = graph.owner.get(number, -1)
        if call < 0:
            continue
        if graph[number].kind in ("call", "pointwise"):
            whole.add(call)
        elif number in formed:
            before, cost = costs.get(call) or NOTHING, formed[number]
            costs[call] = ProductCost(before.products + cost.products, before.sums + cost.sums, cost.name)
    known = known or ElementKnowledge({}, {})
    solved, used = _solved(graph, live, formed), used_parts(graph, live, known.filled)
    attentions = (number for number in live if number in graph.owner and is_attention(graph[number]))
    spared_pairs = {graph.owner[number]: _spared_pairs(graph, number, known)[0] for number in attentions}
    for call in whole:
        if call in solved:
            costs[call] = ProductCost(solved[call].products, 0, "product_order")
            continue
        if (call in graph.gradients or call in used) and call in works:
            most, part = products_of(works[call]), used.get(call, UsedPart(0, 1, 1))
            if call in graph.gradients:
                most = min(most, _gradient_products(graph, *graph.gradients[call]))
            name = "masked_product" if call in used else "repeated_operand"
            costs[call] = ProductCost(max(0, most - part.spared) * part.used // part.of, 0, name)
            continue
        if spared_pairs.get(call) and call in works:
            costs[call] = ProductCost(max(0, products_of(works[call]) - spared_pairs[call]), 0, "masked_product")
            continue
        others = products_of(works[call]) - graph.separated[call] if call in graph.separated and call in works else None
        before = costs.get(call) or NOTHING
        costs[call] = None if others is None else before._replace(products=before.products + max(others, 0))
    return costs


def _of_rows(graph: Graph, number: int, dense: int, costs: Mapping[int, ProductCost]) -> int:
    """Return the part of so many multiply-adds that a product takes of its own where rows are few, or elements zero."""
    whole = cost(graph, graph[number], zeros=False)[0]
    return dense * costs[number].products // whole if whole else dense


def _gradient_products(graph: Graph, product: int, count: int) -> int:
    """Return the multiply-adds of so many gradients of a product over a resized image."""
    return count * resampled_products(graph, graph[product], cost(graph, graph[product], zeros=False)[0])


class _Solved(NamedTuple):
    """Equations that are solved in place of an inverse that only multiplies."""

    products: int
    """Multiply-adds of the factorisation."""
    users: tuple[int, ...]
    """Products with the inverse."""
    equations: int
    """How many."""


def _solved(graph: Graph, live: Sequence[int], formed: Mapping[int, ProductCost]) -> dict[int, _Solved]:
    """Return by call of an inverse that only multiplies what solving the equations instead takes.

    Of n equations that is a factorisation, n (n - 1) (n + 1) / 6 multiply-adds where the matrix may turn out to be
    definite, and for each right-hand side n less than the product with the inverse.

    Source: Blackford and Dongarra 1999, LAPACK Working Note 41, appendix C.
    """
    owners = {
        number: graph.owner[number] for number in live
        if number in graph.owner and isinstance(stated := graph[number].options, OperatorCall)
        and packet(stated.name) in _INVERSES and not stated.result
    }  # fmt: skip
    views = {number: graph[number].inputs[0] for number in live if graph[number].kind == "view"}
    users: dict[int, list[int]] = {}
    for number in live if owners else ():
        for source in {views.get(operand, operand) for operand in graph[number].inputs} & set(owners):
            users.setdefault(source, []).append(number)
    solved = {}
    for number, call in owners.items():
        n, products = graph[number].shape[-1], [user for user in users.get(number, ()) if user not in views]
        if products and all(user in formed for user in products):
            batch = prod(graph[number].shape[:-2])
            solved[call] = _Solved(batch * (n * (n - 1) * (n + 1) // 6), tuple(products), n)
    return solved


def part_shares(graph: Graph, live: Sequence[int], known: ElementKnowledge) -> dict[int, tuple[int, int]]:
    """Return how many of how many products are needed of recurrent steps and parts of attentions that are nodes."""
    shares = {}
    for number in live:
        if number in graph.parts and is_steps(graph[number]):
            shares[number] = used_share(graph, number, known.needed.get(number))
        elif number in graph.parts and is_attention(graph[number]):
            most, whole = _spared_pairs(graph, number, known)
            shares[number] = (max(0, whole - most), max(1, whole))
    return shares


def _spared_pairs(graph: Graph, number: int, known: ElementKnowledge) -> tuple[int, int]:
    """Return the products of an attention that rows of zeros, or what nothing needs, spare at most, and all of them."""
    node = graph[number]
    query, key, value = (graph[source].shape for source in node.inputs[:3])
    zero = [_zero_rows(known.filled.get(source), shape[:-1]) for source, shape in zip(
        node.inputs[:3], (query, key, value), strict=True)]  # fmt: skip
    met, most = np.full(query[2], key[2]), 0
    if is_causal(graph, node):
        met = np.arange(1, key[2] + 1)
    if (needed := known.needed.get(number)) is not None:
        rows = needed.array.any(axis=-1, keepdims=True)
        zero[0] = zero[0] | ~rows[..., 0]
        columns = rows & ~needed.array
        most = int((columns * met[:, None]).sum()) * (prod(query[:2]) // prod(columns.shape[:2]))
    shared = query[1] // max(key[1], 1)
    most += int((zero[0] * met).sum()) * (key[3] + value[3])
    most += query[2] * shared * (int(zero[1].sum()) * key[3] + int(zero[2].sum()) * value[3])
    return most, prod(query[:2]) * int(met.sum()) * (key[3] + value[3])


def _zero_rows(filled: ElementSet, shape: tuple[int, ...]) -> Any:
    """Return the rows that are surely 0, a boolean array of that shape."""
    zero = False if filled is None else ~filled.array.any(axis=-1)
    return np.broadcast_to(zero, shape)


_INVERSES = ("linalg_inv_ex", "inverse")


def products_of(work: Work) -> int:
    """Return the multiply-adds of matrix products."""
    return sum(flop for kind, flop in work.flop.items() if kind.startswith("matrix.")) // 2


def spared(calls: Mapping[int, ProductCost | None], works: Mapping[int, Work]) -> list[Saving]:
    """Return a line for each call whose products are fewer than the call forms."""
    lines = []
    for call, formed in calls.items():
        done = products_of(works[call]) if call in works else 0
        if formed is not None and formed.name and formed.products < done:
            lines.append(Saving(formed.name, call, (done, formed.products)))
    return lines
