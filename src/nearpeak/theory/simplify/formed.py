"""How many multiply-adds each product still takes, once repeats, symmetry and known zeros are left out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearpeak.core.work import Work
from nearpeak.theory.simplify.graph import Graph
from nearpeak.theory.simplify.products import contracts, cost
from nearpeak.theory.simplify.search import Found
from nearpeak.theory.simplify.symmetry import halved
from nearpeak.theory.simplify.triangles import kept_of_products


class Formed(NamedTuple):
    """What one product takes."""

    products: int
    """Multiply-adds."""
    sums: int
    """Other additions."""
    name: str
    """Rewrite that spares the rest, where that is less than the call does."""


NOTHING = Formed(0, 0, "")
"""A call of which no product is left."""


def formed_products(graph: Graph, live: Sequence[int], roots: Sequence[int]) -> dict[int, Formed]:
    """Return what each live product of several operands takes."""
    parts, kept = halved(graph, live), kept_of_products(graph, live, roots)
    found = {}
    for number in live:
        node = graph[number]
        if not contracts(node):
            continue
        products, sums = cost(graph, node, kept.get(number))
        name = "known_zeros" if products < cost(graph, node, zeros=False)[0] else "repeated_operand"
        if number in parts and name != "known_zeros":
            formed, of = parts[number]
            products, sums, name = products * formed // of, sums * formed // of, "symmetric_product"
        found[number] = Formed(products, sums, name)
    return found


def by_call(graph: Graph, live: Sequence[int], formed: Mapping[int, Formed]) -> dict[int, Formed | None]:
    """Return what the products take of each call that still does some; none for one that does more than products."""
    found: dict[int, Formed | None] = {}
    for number in live:
        call = graph.owner.get(number, -1)
        if call < 0:
            continue
        if graph[number].kind in ("call", "pointwise"):
            found[call] = None
        elif number in formed and (before := found.get(call, NOTHING)) is not None:
            one = formed[number]
            found[call] = Formed(before.products + one.products, before.sums + one.sums, one.name)
    return found


def spared(calls: Mapping[int, Formed | None], works: Mapping[int, Work]) -> list[Found]:
    """Return a line for each call whose products are fewer than the call forms."""
    lines = []
    for call, formed in calls.items():
        done = sum(n for kind, n in works[call].flop.items() if kind.startswith("matrix.")) // 2 if call in works else 0
        if formed is not None and formed.products < done:
            lines.append(Found(formed.name, call, (done, formed.products)))
    return lines
