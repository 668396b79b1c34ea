"""Counts what a simplified step must still do: arithmetic by kind, bytes of what is given."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from nearpeak.core.dtype import dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import NO_WORK, Work
from nearpeak.core.workload import Use
from nearpeak.ops._arithmetic import contraction, unit
from nearpeak.theory.compulsory import union_bytes, without_bytes
from nearpeak.theory.simplify.graph import Graph, Node
from nearpeak.theory.simplify.products import contracts, cost
from nearpeak.theory.simplify.views import View

_MOVES = ("given", "constant", "view", "patch", "strided", "spread", "turned", "join")


def arithmetic(graph: Graph, live: Sequence[int], works: Mapping[int, Work], algorithm: str) -> Work:
    """Return the arithmetic of the live nodes.

    Args:
        works: work of each call by position, with that of the calls that belong to it.

    A node that a call made stands for what that call does: its products where the node is one, the rest once.
    """
    whole: set[int] = set()
    rest: set[int] = set()
    total: dict[str, int] = {}
    special = 0
    for number in live:
        node, call = graph[number], graph.owner.get(number, -1)
        if node.kind in _MOVES:
            continue
        if call >= 0:
            rest.add(call)
            if node.kind in ("call", "pointwise") or contracts(node):
                whole.add(call)
            continue
        if algorithm != "classical":
            continue
        if number in graph.parts:
            call, elements, of = graph.parts[number]
            part = without_bytes(works.get(call, NO_WORK))
            _gather(total, {kind: flop * elements // of for kind, flop in part.flop.items()})
            special += part.special_count * elements // of
            continue
        _gather(total, _computed(graph, node))
    alike = Counter((id(works[call]), call in whole) for call in rest if call in works)
    distinct = {id(work): work for work in works.values()}
    for (one, products), count in alike.items():
        part = without_bytes(distinct[one])
        _gather(total, {k: n * count for k, n in part.flop.items() if products or not k.startswith("matrix.")})
        special += part.special_count * count
    return Work(flop=total, special_count=special, launch_count=0)


def _computed(graph: Graph, node: Node) -> dict[str, int]:
    """Return the FLOP of a node that a rewrite made."""
    dtype = dtype_of(node.dtype)
    if node.kind == "product":
        products, sums = cost(graph, node)
        return contraction(dtype, products, sums) if products else {unit(dtype): sums}
    return {unit(dtype): prod(node.shape) * max(1, len(node.inputs) - 1)}


def _gather(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, flop in more.items():
        total[kind] = total.get(kind, 0) + flop


def given_bytes(graph: Graph, live: Sequence[int]) -> dict[int, int]:
    """Return the bytes that the live nodes read of each storage whose content is there before the step."""
    uses: dict[int, list[Use]] = {}
    for number in live:
        node = graph[number]
        for one in node.inputs:
            given = graph[one]
            if given.kind == "given":
                buffer = given.options
                uses.setdefault(buffer, []).append(_use(buffer, given, node))
    return {buffer: union_bytes(own) for buffer, own in uses.items()}


def _use(buffer: int, given: Node, node: Node) -> Use:
    """Return what a node touches of the storage that it is made of."""
    if not isinstance(node.options, View):
        tensor = Tensor(shape=given.shape, dtype=given.dtype)
    else:
        runs = [(step, n) for group in node.options.groups for axis, step, n in group if axis >= 0]
        tensor = Tensor(
            shape=tuple(n for _, n in runs), dtype=given.dtype, strides=tuple(step for step, _ in runs),
            offset=node.options.starts[0],
        )  # fmt: skip
    start, stop = tensor.span_bytes
    return Use(buffer=buffer, bytes=tensor.bytes, start_bytes=start, stop_bytes=stop)
