"""A reduction over one element is that element; a softmax over one element is 1, its logarithm 0."""

from math import prod

from nearpeak.bounds.simplify.affine_views import View, repeated, reshape, selected
from nearpeak.bounds.simplify.operator_arguments import dimensions
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet

_SAME = frozenset(("amax", "amin", "max", "min", "prod", "logsumexp", "cumsum", "cumprod", "logcumsumexp"))
_NORMS = ("native_layer_norm", "native_group_norm")
_FIXED = {"_softmax": 1.0, "_safe_softmax": 1.0, "_log_softmax": 0.0, "argmax": 0.0, "argmin": 0.0}


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, OperatorCall)
    name = packet(node.options.name)
    if node.options.arguments and (name in _NORMS or name == "attention"):  # of others only the storages are known
        return _whole_layer(graph, node, node.options, name)
    if len(node.inputs) != 1 or name not in _SAME | set(_FIXED):
        return None
    shape = graph[node.inputs[0]].shape
    if any(shape[axis] != 1 for axis in dimensions(node.options, len(shape))):
        return None
    if node.options.result:  # the position of the largest among one
        return graph.constant(0.0, node.shape, node.dtype)
    if name in _FIXED:
        return graph.constant(_FIXED[name], node.shape, node.dtype)
    return reshape(graph, node.inputs[0], node.shape)


def _whole_layer(graph: Graph, node: Node, stated: OperatorCall, name: str) -> int | None:
    """Return attention to one key as its value, and a normalisation over groups of one element as the bias, or 0."""
    shape = graph[node.inputs[0]].shape
    if name == "attention":
        value = graph[node.inputs[2]].shape
        is_one = value[2] == 1 and value[:2] == node.shape[:2] and not (stated.result or stated.value("dropout_p"))
        return repeated(graph, node.inputs[2], node.shape) if is_one else _one_query(graph, node, stated)
    if name == "native_layer_norm":
        normalised = stated.value("normalized_shape")
        bias_shape = shape[-len(normalised) :] if isinstance(normalised, tuple) and normalised else (0,)
        count = prod(bias_shape)
    else:
        groups = stated.value("group")
        count = prod(shape[1:]) // groups if isinstance(groups, int) and groups else 0
        bias_shape = (shape[1], *(1 for _ in shape[2:]))
    if count != 1 or stated.result:
        return None
    bias = stated.value("bias")
    if not isinstance(bias, Slot):
        return graph.constant(0.0, node.shape, node.dtype)
    return repeated(graph, reshape(graph, node.inputs[bias.position], bias_shape), node.shape)


def _one_query(graph: Graph, node: Node, stated: OperatorCall) -> int | None:
    """Return attention of queries that are all alike as that of one of them, repeated; none elsewhere."""
    queries = graph[node.inputs[0]]
    alike = isinstance(queries.options, View) and all(axis < 0 for axis, _, _ in queries.options.groups[2])
    blind = not stated.value("is_causal") and stated.value("mask") is None and not stated.value("dropout_p")
    if not (alike and blind and queries.shape[2] > 1 and graph.call >= 0) or stated.result:
        return None
    first = selected(graph, node.inputs[0], 2, 0, 1)
    shape = (*node.shape[:2], 1, *node.shape[3:])
    single = graph.add("call", (first, *node.inputs[1:]), shape, node.dtype, stated)
    graph.parts[single] = (graph.call, 1, node.shape[2])
    graph.owner.pop(single, None)
    return repeated(graph, single, node.shape)


REWRITE = Rewrite(
    kinds=("call",),
    rule=_rule,
    text="a reduction over one element is that element, a softmax is 1, attention to one key its value",
    sound="values are finite (A8)",
)
