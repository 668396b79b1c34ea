"""Group normalisation that an exporter wrote as Reshape, InstanceNormalization, Reshape, Mul and Add."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from nearpeak.conversion.model_graph import ModelGraph
from nearpeak.core.work.workload import Call
from nearpeak.ops import case as case_of

NATIVE_OPSET = 21
"""Operator set from which PyTorch 2.13 exports the operator itself; at 18 and 20 it writes the five nodes."""


class DecomposedNorm(NamedTuple):
    """A group normalisation in several nodes."""

    nodes: tuple[int, ...]
    """Its nodes in order."""
    group_count: int
    """Groups of channels."""
    shape: tuple[int, ...]
    """Extents of the tensor that it normalises."""
    dtype: str
    """Format of that tensor."""
    is_affine: bool
    """Whether scale and shift of each channel are among the nodes."""


def decomposed_norms(graph: ModelGraph) -> Iterator[DecomposedNorm]:
    """Yield the group normalisations that the file holds in several nodes."""
    readers: dict[str, list[int]] = {}
    for node, proto in enumerate(graph.protos):
        for name in proto.input:
            readers.setdefault(name, []).append(node)
    makers = {name: node for node, proto in enumerate(graph.protos) for name in proto.output}
    for node, proto in enumerate(graph.protos):
        before = makers.get(proto.input[0], -1) if graph.kinds[node] == "InstanceNormalization" else -1
        after = _only_reader(graph, readers, node, "Reshape")
        if before < 0 or after < 0 or graph.kinds[before] != "Reshape":
            continue
        whole, grouped = (graph.tensors.get(name) for name in (graph.protos[before].input[0], proto.input[0]))
        restored = graph.tensors.get(graph.protos[after].output[0])
        if whole is None or grouped is None or restored is None or whole.shape != restored.shape:
            continue
        if len(whole.shape) < 3 or len(grouped.shape) < 3 or whole.shape[1] % grouped.shape[1]:
            continue
        scale = _only_reader(graph, readers, after, "Mul")
        shift = _only_reader(graph, readers, scale, "Add") if scale >= 0 else -1
        tail = (scale, shift) if shift >= 0 and _are_constant(graph, scale, shift) else ()
        yield DecomposedNorm(
            nodes=(before, node, after, *tail), group_count=grouped.shape[1], shape=whole.shape, dtype=whole.dtype,
            is_affine=bool(tail),
        )  # fmt: skip


def _only_reader(graph: ModelGraph, readers: dict[str, list[int]], node: int, kind: str) -> int:
    """Return the only node that reads the first result of a node, if it is of a kind; else -1."""
    name = graph.protos[node].output[0]
    following = readers.get(name, [])
    alone = len(following) == 1 and name not in graph.results
    return following[0] if alone and graph.kinds[following[0]] == kind else -1


def _are_constant(graph: ModelGraph, *nodes: int) -> bool:
    """Return whether each node has one operand that does not depend on the model's inputs."""
    static = graph.stored | set(graph.values)
    return all(any(name in static for name in graph.protos[node].input) for node in nodes)


def with_native_norms(graph: ModelGraph) -> tuple[ModelGraph, tuple[DecomposedNorm, ...]]:
    """Return the graph with one call for each decomposed normalisation, and these; its nodes stay."""
    norms = tuple(decomposed_norms(graph))
    calls, owned = list(graph.workload.calls), list(graph.calls)
    for norm in norms:
        positions = sorted(position for node in norm.nodes for position in graph.calls[node])
        if not positions:
            continue
        calls[positions[0]] = _native_call([calls[position] for position in positions], norm)
        for node in norm.nodes:
            owned[node] = ()
        owned[norm.nodes[1]] = (positions[0],)
    return replace(graph, workload=replace(graph.workload, calls=tuple(calls)), calls=tuple(owned)), norms


def _native_call(calls: list[Call], norm: DecomposedNorm) -> Call:
    batch, channels, *spatial = norm.shape
    elements = 1
    for extent in spatial:
        elements *= extent
    case = case_of(
        "group_norm", batch=batch, channels=channels, spatial=elements, groups=norm.group_count, dtype=norm.dtype,
        affine=norm.is_affine,
    )  # fmt: skip
    return replace(calls[0], case=case, operator="GroupNormalization", writes=calls[-1].writes)
