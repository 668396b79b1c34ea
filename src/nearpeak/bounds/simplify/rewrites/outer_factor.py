"""A sum over products with an outer product runs over the factor that varies along it: (x yᵀ) W = x (yᵀ W)."""

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.operand_facts import says_more
from nearpeak.bounds.simplify.product_sums import Product, Term, contracts, merged, opened, placed, view_term
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_FACTORS = 4


def _rule(graph: Graph, node: Node) -> int | None:
    if not contracts(node):
        return None
    assert isinstance(node.options, Product)
    if len(node.inputs) > 2 and (outer := _apart(graph, node)) is not None:
        return outer
    for place, number in enumerate(node.inputs):
        inner = _factors(graph, number)
        if inner is None or len(node.inputs) + len(inner.operands) - 1 > _MOST_FACTORS:
            continue
        pairs = zip(node.options.labels[place], inner.axes, strict=True)
        summed = {moved for label, axis in pairs if label not in node.options.out for moved in axis}
        moves = [{label for _, steps in index for label, _ in steps} for _, index in inner.operands]
        if not summed or all(summed <= moved for moved in moves):
            continue
        term = merged(graph, opened(graph, node), place, inner)
        return None if term is None else placed(graph, term, node.dtype)
    return None


def _apart(graph: Graph, node: Node) -> int | None:
    """Return the outer product of products that have no label in common; none where all have some."""
    term = opened(graph, node)
    moves = [{label for _, steps in index for label, _ in steps} for _, index in term.operands]
    groups: list[tuple[set[int], list[int]]] = []
    for place, operand_labels in enumerate(moves):
        joined = [group for group in groups if group[0] & operand_labels]
        groups = [group for group in groups if group not in joined]
        groups.append(
            (
                operand_labels.union(*(labels for labels, _ in joined)),
                sorted([place, *(i for _, p in joined for i in p)]),
            )
        )
    if len(groups) < 2:
        return None
    out = [label for axis in term.axes for label in axis]
    operands = []
    for labels, places in groups:
        left = tuple((label,) for label in out if label in labels)
        sizes = {label: n for label, n in term.sizes.items() if label in labels}
        part = placed(graph, Term(tuple(term.operands[place] for place in places), left, sizes), node.dtype)
        if part is None:
            return None
        operands.append((part, tuple((0, ((label, 1),)) for (label,) in left)))
    sizes = {label: n for label, n in term.sizes.items() if label in out}
    return placed(graph, Term(tuple(operands), term.axes, sizes, term.factor), node.dtype)


def _factors(graph: Graph, number: int) -> Term | None:
    """Return an element-wise product, or a view of one, with those among its factors opened; none for others."""
    whole = graph[number]
    if _is_open(graph, number):
        term = opened(graph, whole)
    elif isinstance(whole.options, View) and _is_open(graph, whole.inputs[0]):
        term = view_term(graph, whole.inputs[0], whole.options)
    else:
        return None
    while len(term.operands) <= _MOST_FACTORS:
        nested = (
            (place, _is_open(graph, source))
            for place, (source, _) in enumerate(term.operands)
            if _is_open(graph, source)
            or (isinstance(graph[source].options, View) and _is_open(graph, graph[source].inputs[0]))
        )
        place, is_product = next(nested, (-1, False))
        if place < 0:
            return term
        source = term.operands[place][0]
        node = graph[source]
        more = opened(graph, node) if is_product else view_term(graph, node.inputs[0], node.options)
        flat = merged(graph, term, place, more)
        if flat is None:
            return term
        term = flat
    return None


def _is_open(graph: Graph, number: int) -> bool:
    """Say whether a node is an element-wise product of which no more is known than of its factors."""
    node = graph[number]
    several = isinstance(node.options, Product) and 1 < len(node.inputs) <= _MOST_FACTORS
    return several and not contracts(node) and not says_more(graph, number)


REWRITE = Rewrite(
    kinds=("product",),
    rule=_rule,
    text="a factor that does not vary along a sum is taken out of it",
    sound="always, in real arithmetic (A18)",
    shown=False,
)
