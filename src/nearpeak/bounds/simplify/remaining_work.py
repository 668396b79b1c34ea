"""FLOP by kind and bytes read from initial tensors that a simplified step still needs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.element_patterns import ElementSet
from nearpeak.bounds.simplify.operand_facts import carrier_of_node
from nearpeak.bounds.simplify.product_counts import NOTHING, ProductCost
from nearpeak.bounds.simplify.product_orders import cost
from nearpeak.bounds.simplify.value_graph import Graph, Node
from nearpeak.bounds.step.compulsory_work import without_bytes
from nearpeak.bounds.value_facts.carriers import level_of, narrowed_products
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.storage_unions import union_bytes
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import NO_WORK, Work
from nearpeak.core.work.workload import Use
from nearpeak.ops.shared.arithmetic import contraction, unit

_MOVES = ("given", "constant", "view", "patch", "strided", "spread", "turned", "join")


def arithmetic(
    graph: Graph, live: Sequence[int], works: Mapping[int, Work], algorithm: str,
    products: tuple[Mapping[int, ProductCost], Mapping[int, ProductCost | None]], shares: Mapping[int, tuple[int, int]],
) -> Work:  # fmt: skip
    """Return the arithmetic of the live nodes.

    Args:
        works: work of each call by position, with that of the calls that belong to it.
        products: what each product takes, and the products of each call.
        shares: how many of how many products are needed of nodes that do a part of a call, where these are fewer.

    A node that a call made stands for what that call does: its products where the node is one, the rest once. Nodes
    that do a part of it do no more than all of it together.
    """
    formed, whole = products
    rest: set[int] = set()
    parts: dict[int, Fraction] = {}
    total: dict[str, int] = {}
    special = 0
    for number in live:
        node, call = graph[number], graph.owner.get(number, -1)
        if node.kind in _MOVES:
            continue
        if call >= 0:
            rest.add(call)
            continue
        if algorithm != "classical":
            continue
        if number in graph.parts:
            call, elements, of = graph.parts[number]
            used = shares.get(number, (1, 1))
            parts[call] = parts.get(call, Fraction(0)) + Fraction(elements * used[0], of * used[1])
            continue
        _gather(total, _computed(graph, node, formed.get(number)))
    for call, amount in parts.items():
        part, done = without_bytes(works.get(call, NO_WORK)), min(amount, Fraction(1))
        _gather(total, {kind: flop * done.numerator // done.denominator for kind, flop in part.flop.items()})
        special += part.special_count * done.numerator // done.denominator
    left = {call: whole.get(call, NOTHING) for call in rest if call in works}
    # None stands for all products of the call; layers that are alike share their work.
    alike = Counter(
        (id(works[call]), None if call_cost is None else 2 * call_cost.products) for call, call_cost in left.items()
    )
    distinct = {id(work): work for work in works.values()}
    for (work_id, most), count in alike.items():
        part = without_bytes(distinct[work_id])
        formed_flop = sum(n for kind, n in part.flop.items() if kind.startswith("matrix."))
        share = (most, formed_flop) if most is not None and most < formed_flop else (1, 1)
        _gather(
            total,
            {k: (n * share[0] // share[1] if k.startswith("matrix.") else n) * count for k, n in part.flop.items()},
        )
        special += part.special_count * count
    return Work(flop=total, special_count=special, launch_count=0)


def _computed(graph: Graph, node: Node, formed: ProductCost | None) -> dict[str, int]:
    """Return the FLOP of a node that a rewrite made."""
    dtype = dtype_of(node.dtype)
    if node.kind == "product":
        products, sums = cost(graph, node) if formed is None else formed[:2]
        flop = contraction(dtype, products, sums) if products else {unit(dtype): sums}
        if not graph.carriers or len(node.inputs) < 2:
            return flop
        first, second, *_ = sorted((carrier_of_node(graph, factor) for factor in node.inputs), key=level_of)
        return narrowed_products(flop, first, second)
    return {unit(dtype): prod(node.shape) * max(1, len(node.inputs) - 1)}


def _gather(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, flop in more.items():
        total[kind] = total.get(kind, 0) + flop


def initial_bytes(graph: Graph, live: Sequence[int], needed: Mapping[int, ElementSet]) -> dict[int, int]:
    """Return the bytes that the live nodes read of each storage whose content is there before the step.

    Args:
        needed: elements that something needs, where that is known.
    """
    most: dict[int, int | None] = {}
    for number in live:
        node = graph[number]
        if node.kind == "given":
            before = most.get(node.options, 0)
            wanted, size = needed.get(number), 0
            if wanted is not None:
                repeats = prod(node.shape) // prod(wanted.array.shape)
                size = dtype_of(node.dtype).bytes(int(wanted.array.sum()) * repeats)
            most[node.options] = None if before is None or wanted is None else before + size
    uses: dict[int, list[Use]] = {}
    for number in live:
        node = graph[number]
        for source in node.inputs:
            storage = graph[source]
            if storage.kind == "given":
                buffer = storage.options
                uses.setdefault(buffer, []).append(_use(buffer, storage, node))
    sizes = {buffer: union_bytes(upper) for buffer, upper in uses.items()}
    return {b: size if (upper := most.get(b)) is None else min(size, upper) for b, size in sizes.items()}


def _use(buffer: int, storage: Node, node: Node) -> Use:
    """Return what a node touches of the storage that it is made of."""
    if not isinstance(node.options, View):
        tensor = Tensor(shape=storage.shape, dtype=storage.dtype)
    else:
        runs = [(step, n) for group in node.options.groups for axis, step, n in group if axis >= 0]
        tensor = Tensor(
            shape=tuple(n for _, n in runs), dtype=storage.dtype, strides=tuple(step for step, _ in runs),
            offset=node.options.starts[0],
        )  # fmt: skip
    start, stop = tensor.span_bytes
    return Use(buffer=buffer, bytes=tensor.bytes, start_bytes=start, stop_bytes=stop, runs=tensor.block_runs)
