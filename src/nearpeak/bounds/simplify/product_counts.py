"""Multiply-adds of each product after repeats, symmetry and known zeros are removed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearpeak.bounds.simplify.element_patterns import Patterns
from nearpeak.bounds.simplify.live_elements import ElementKnowledge
from nearpeak.bounds.simplify.live_products import live_products
from nearpeak.bounds.simplify.product_orders import cost
from nearpeak.bounds.simplify.product_sums import contracts
from nearpeak.bounds.simplify.rewrite_search import Saving
from nearpeak.bounds.simplify.transpose_symmetry import symmetric
from nearpeak.bounds.simplify.triangular_zeros import product_triangle_shares
from nearpeak.bounds.simplify.value_graph import Graph
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
    costs = {}
    for number in live:
        node = graph[number]
        if not contracts(node):
            continue
        products, sums = cost(graph, node, triangle_shares.get(number))
        name = "known_zeros" if products < cost(graph, node, zeros=False)[0] else "repeated_operand"
        pair = pairs.get(number)
        if pair is not None and name != "known_zeros":
            extent = node.shape[pair[0]]
            products, sums = (amount * (extent + 1) // (2 * extent) for amount in (products, sums))
            name = "symmetric_product"
        if known is not None:
            least = live_products(graph, number, known, patterns, pair)
            sources = (graph[graph[operand].inputs[0]] for operand in node.inputs if graph[operand].kind == "view")
            spread = any(source.kind == "spread" for source in sources)  # zeros that element sets do not tell
            if least is not None and (least < products or not spread):
                products, name = least, name if name == "known_zeros" else "masked_product"
        costs[number] = ProductCost(products, sums, name)
    return costs


def by_call(
    graph: Graph, live: Sequence[int], formed: Mapping[int, ProductCost], works: Mapping[int, Work]
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
    for call in whole:
        others = products_of(works[call]) - graph.separated[call] if call in graph.separated and call in works else None
        before = costs.get(call) or NOTHING
        costs[call] = None if others is None else before._replace(products=before.products + max(others, 0))
    return costs


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
